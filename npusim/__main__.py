"""`python -m npusim`: see cli.py."""
import os
import sys

from .cli import main

if __name__ == "__main__":  # guarded: report's worker processes import this module again
    os.environ.pop("TRITON_INTERPRET", None)  # kernels of the interpreter have no compiled form
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe had enough (head): not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
