"""`python -m npusim`: see cli.py."""
import os
import sys

from .cli import main

if __name__ == "__main__":  # guarded: report's worker processes import this module again
    os.environ.pop("TRITON_INTERPRET", None)  # kernels of the interpreter have no compiled form
    sys.exit(main())
