"""The pull request's one commit message: title, then upstream's three questions, with figures from docs/data."""
from __future__ import annotations

import re
import textwrap
from pathlib import Path

from . import operator

TEXTS = Path(__file__).parent / "templates/message"
QUESTIONS = ("What this PR does / why we need it?", "Does this PR introduce any user-facing change?",
             "How was this patch tested?")


def build(target) -> str:
    """Title and answers of a target (see targets.py)."""
    text = (TEXTS / f"{target.name}.md").read_text(encoding="utf-8")
    missing = [question for question in QUESTIONS if f"## {question}" not in text]
    assert not missing, f"{target.name}.md does not answer: {missing}"
    figures = _figures()
    text = text.replace("@FIGURES@", figures).replace("@VERSION@", operator.version())
    return f"{target.title}\n\n" + "\n\n".join(_wrapped(part) for part in text.strip().split("\n\n")) + "\n"


def _wrapped(paragraph: str) -> str:
    """At 100 columns; points of a list keep their marks."""
    points = re.split(r"\n(?=\* )", paragraph)
    return "\n".join(textwrap.fill(point, 100, subsequent_indent="  " * point.startswith("* "),
                                   break_long_words=False, break_on_hyphens=False) for point in points)


def _figures() -> str:
    from docs.figures import message_lines

    return "\n".join(f"* {line}" for line in message_lines())
