"""The table of published failures is complete, and says where the tests are."""
from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

UT = Path(__file__).parents[1]
ID = r"[NTVHLRXAP]\d\d"
SECTIONS = {"N": 15, "T": 12, "V": 12, "H": 13, "L": 7, "R": 11, "X": 4, "A": 9, "P": 11}  # 94 reports
ROW = re.compile(rf"^\| ({ID}) \| (.+)$")


def rows(path: Path) -> list[tuple[str, list[str]]]:
    found = (ROW.match(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [(row[1], [cell.strip() for cell in row[2].rstrip("| ").split(" | ")]) for row in found if row]


def carriers() -> dict[str, set[str]]:
    """id → files with a test, or a recipe, that carries it."""
    found = defaultdict(set)
    for path in UT.rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(rf'\s*(def test_|"{ID}-)', line):
                for name in re.findall(rf"(?<![A-Za-z0-9])({ID})(?=[_-])", line):
                    found[name].add(path.relative_to(UT).as_posix())
    return found


TABLE = rows(UT / "hostile" / "cases.md")
EXCUSED = rows(UT / "cases_not_applicable.md")


def test_every_report_is_in_the_table_once():
    names = [name for name, _ in TABLE]
    assert Counter(name[0] for name in names) == SECTIONS
    assert max(Counter(names).values()) == 1


def test_every_report_has_a_test_or_a_reason():
    carried = carriers()
    assert {name for name, _ in TABLE} - set(carried) == {name for name, cells in EXCUSED if len(cells) == 2}
    assert set(carried) <= {name for name, _ in TABLE}, "a test carries an id that the table does not have"


def test_the_table_names_the_files_that_carry_each_id():
    carried = carriers()
    for name, (failure, source, files) in TABLE:
        assert failure and (source.startswith("[") or source in ("by reading", "commit log")), name
        assert set(files.split(", ")) - {"-"} == carried[name], f"{name}: tests are in {sorted(carried[name])}"


def test_reasons_are_of_known_reports_and_say_what_would_be_needed():
    assert {name for name, _ in EXCUSED} <= {name for name, _ in TABLE}
    for name, cells in EXCUSED:
        assert len(cells) in (2, 3) and all(cells), name
