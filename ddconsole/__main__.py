"""`python -m ddconsole`."""

import sys

from ddconsole.cli import main

sys.exit(main())
