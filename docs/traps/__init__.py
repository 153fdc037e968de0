"""Minimal reproductions of what the Ascend compiler did to us, one file each: a kernel as first written, and a way out.

`python -m docs.traps` compiles all of them for 910B2 (no device) and writes docs/data/traps.json. A file has TITLE_EN,
TITLE_ZH, and bad() and good(), which say what the compiler made of either.
"""
