"""How a process of ours starts another process of ours, wherever this one was brought to.

The paths go in as code, not as PYTHONPATH: the environment is handed on to the server under test, which must see
nothing of ours.
"""

import os
import sys


def own_process(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line of `python -m MODULE ARGUMENTS`, able to import what this process can import."""
    here = os.getcwd()  # noqa: PTH109  # a string is what is needed
    paths = [path or here for path in sys.path]
    code = f"import runpy,sys;sys.path[:]={paths!r};runpy.run_module({module!r},run_name='__main__',alter_sys=True)"
    return (sys.executable, "-c", code, *arguments)
