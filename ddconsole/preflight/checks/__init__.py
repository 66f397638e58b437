"""The checks, one file each; `ddconsole.preflight.register` lists them."""
