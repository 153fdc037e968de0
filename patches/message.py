"""The pull request's one commit message: title, then upstream's three questions, with figures from docs/data."""
from __future__ import annotations

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
    return f"{target.title}\n\n{text.replace('@FIGURES@', figures).replace('@VERSION@', operator.version())}"


def _figures() -> str:
    from docs.figures import message_lines

    return "\n".join(f"* {line}" for line in message_lines())
