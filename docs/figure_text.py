"""Pieces that the figure blocks share: two languages, a table, a shape, a number. What a block says is not here."""
from __future__ import annotations


def say(lang: str, en: str, zh: str) -> str:
    return zh if lang == "zh" else en


def missing(lang: str, what: str, command: str) -> str:
    return say(lang, f"*Not here yet: {what}; `{command}` makes it.*", f"*尚无数据：{what}，由 `{command}` 生成。*")


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def numbers(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def error(value) -> str:
    return "NaN/Inf" if value is None else f"{value:.0e}"
