"""`python -m ddconsole.load`: the load process."""

from ddconsole.load.process import main

main()
