"""docs/errors.md quotes the library: what it quotes is what the library says."""

from __future__ import annotations

import re

from support import ROOT

QUOTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def sources() -> str:
    """All sources, with literals that stand side by side made one."""
    paths = [path for path in sorted((ROOT / "horovod_tf").rglob("*")) if path.suffix in {".cc", ".py"}]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in paths))


def test_every_quoted_text_is_one_of_the_library() -> None:
    quoted = QUOTED.findall((ROOT / "docs/errors.md").read_text())
    assert len(quoted) > 20
    said = sources()
    missing = [part.strip() for text in quoted for part in text.split("…") if part.strip() not in said]
    assert missing == []
