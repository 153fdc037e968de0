"""A small stand-in for ATK, for machines without it: enough to generate, run, judge and report this package's cases.

Written from ATK's public documents; nothing here was run beside a real ATK. The operator package does not import it:
`run_local.py` and the tests do, and only where ATK is not installed.
"""
