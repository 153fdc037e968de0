"""`python -m patches`: see cli.py."""
import sys

from .cli import main

sys.exit(main())
