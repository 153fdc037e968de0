"""`python -m npusim`: see cli.py."""
import sys

from .cli import main

if __name__ == "__main__":  # guarded: report's worker processes import this module again
    sys.exit(main())
