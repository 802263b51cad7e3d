"""docs/traps.md: its tests exist, and each row says something."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/traps.md"


def rows() -> list[tuple[str, str]]:
    found = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return [(trap, answer) for trap, answer in found if trap != "trap"]


def known_tests() -> set[str]:
    """All tests: `test_...` of Python, and `Suite.Test`."""
    python = [re.findall(r"\bdef (test_\w+)\(", path.read_text()) for path in ROOT.glob("test/**/*.py")]
    native = [re.findall(r"\bTEST(?:_P|_F)?\((\w+), (\w+)\)", path.read_text()) for path in ROOT.glob("test/**/*.cc")]
    return {name for names in python for name in names} | {".".join(pair) for pairs in native for pair in pairs}


def test_every_test_of_the_page_exists() -> None:
    known = known_tests()
    named = [name for _, answer in rows() for name in re.findall(r"`(test_\w+|[A-Z]\w+\.\w+)`", answer)]
    assert len(named) > 80
    assert [name for name in named if name not in known] == []


def test_every_row_names_a_test_or_says_why_not() -> None:
    assert len(rows()) > 60
    silent = [trap for trap, answer in rows() if "`" not in answer and not answer.startswith("cannot happen: ")]
    assert silent == []
