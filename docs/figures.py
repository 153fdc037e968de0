"""`python -m docs.figures [--check]`: writes every figure of the documents from docs/data, between marks, and the plot.

A block stands between `<!-- figures NAME -->` and `<!-- /figures NAME -->`; its language is the file's. What a block
says is in figure_blocks.py. `--check` writes nothing and exits 1 when a block is out of date.
"""
from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from . import figure_blocks, figure_plot

ROOT = Path(__file__).resolve().parents[1]
MARKS = re.compile(r"(<!-- figures ([\w-]+) -->\n).*?(<!-- /figures \2 -->\n)", re.S)


def pages() -> list[Path]:
    return sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/*/*.md")])


def language(page: Path) -> str:
    return "zh" if page.parent.name == "zh" or page.name == "README.zh.md" else "en"


def rendered(page: Path) -> str:
    """The page with its blocks as they should be."""
    def block(match: re.Match) -> str:
        return match[1] + figure_blocks.block(match[2], language(page)).rstrip("\n") + "\n" + match[3]

    return MARKS.sub(block, page.read_text(encoding="utf-8"))


def message_lines() -> list[str]:
    """For a commit message: the figures in sentences, or what is missing."""
    return figure_blocks.summary("en")


def stale() -> list[Path]:
    return [page for page in pages() if rendered(page) != page.read_text(encoding="utf-8")]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.figures", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(arguments).check:
        for page in stale():
            print(f"{page.relative_to(ROOT)} is out of date; run: make docs-figures")
        return bool(stale())
    for page in stale():
        page.write_text(rendered(page), encoding="utf-8")
        print(page.relative_to(ROOT))
    figure_plot.draw(ROOT / "docs/images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
