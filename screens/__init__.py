"""The console: screens over what `ddconsole.link` knows of a run."""

import os

# Textual reads these once, when it is imported: few frames and no animation, for every byte goes over a link.
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("TEXTUAL_FPS", "15")
