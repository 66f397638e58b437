"""The console: screens over what `ddconsole.link` knows of a run."""
