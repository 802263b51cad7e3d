"""Tables that are generated into documents, each between its two marks."""

from __future__ import annotations

from pathlib import Path


def write_into(document: Path, what: str, text: str) -> None:
    """Puts the text between the marks `<!-- what -->` and `<!-- end of what -->`.

    Raises:
        ValueError: the document has none.
    """
    before, begin, rest = document.read_text().partition(f"<!-- {what} -->\n")
    _, end, after = rest.partition(f"<!-- end of {what} -->\n")
    if not (begin and end):
        raise ValueError(f"{document} has no place for the table of {what}")
    document.write_text(f"{before}{begin}{text}{end}{after}")
