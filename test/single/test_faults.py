"""What `make test-faults` makes of the tests' results, and where its table goes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_support import documents, faults
from support import ROOT

REPORT = """<testsuites><testsuite>
<testcase name="test_t1_a[x]"/>
<testcase name="test_t1_b"><failure message="fault_jobs.FaultError: hang: status 124"/></testcase>
<testcase name="test_t1_c"><failure message="fault_jobs.FaultError: wrong text, without ['x']: s"/></testcase>
<testcase name="test_t1_d"><failure message="AssertionError: x"/></testcase>
<testcase name="test_t17_e"><skipped type="pytest.skip" message="of this library alone"/></testcase>
<testcase name="test_t13_f"><skipped type="pytest.xfail" message="why"/></testcase>
</testsuite></testsuites>"""


def test_table_says_how_many_pass_and_what_is_wrong_with_the_others(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    cases = faults.read_cases(tmp_path / "report.xml")
    table = faults.table({"TensorFlow 1": cases, "TensorFlow 2": cases[:1]}, cases[1:2])
    assert table.startswith("|  | fault | cases | TensorFlow 1 | TensorFlow 2 | Horovod 0.28.1 |\n")
    assert (
        "| T1 | a rank never makes a call | 4 | 1 passed; **1 fails otherwise, 1 hang, 1 wrong text** | 1 passed "
        "| 0 passed; **1 hang** |" in table
    )
    assert "| T13 | fork after init() | 1 | 0 passed; **1 not yet** | - | - |" in table
    assert "| T17 | launcher and library do not fit, versions differ | 1 | - | - | - |" in table
    assert len({row.count("|") for row in table.splitlines()}) == 1
    numbers = [int(row.split(" ")[1][1:]) for row in table.splitlines()[2:]]
    assert numbers == sorted(numbers)


def test_every_tensorflow_has_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FOLDER", tmp_path)
    for side in ("TensorFlow 2.21.0", "TensorFlow 2.15.1", "peer"):
        (tmp_path / f"{side}.json").write_text('[["T1", "test_t1_a", "passed"]]')
    assert list(faults.kept_of_ours()) == ["TensorFlow 2.15.1", "TensorFlow 2.21.0"]


def test_table_goes_between_the_marks(tmp_path: Path) -> None:
    document = tmp_path / "testing.md"
    document.write_text("a\n<!-- faults -->\nold\n<!-- end of faults -->\nb\n")
    documents.write_into(document, "faults", "new\n")
    assert document.read_text() == "a\n<!-- faults -->\nnew\n<!-- end of faults -->\nb\n"
    with pytest.raises(ValueError, match="no place for the table of matrix"):
        documents.write_into(document, "matrix", "new\n")


def test_every_fault_has_cases_and_every_case_a_fault() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / "test/faults").glob("test_*.py")))
    for fault in faults.FAULTS:
        assert f"def test_{fault.lower()}_" in text, fault
    for word in set(re.findall(r"def test_(t\d+)_", text)):
        assert word.upper() in faults.FAULTS
    for _, *where in faults.ELSEWHERE.values():
        assert all((ROOT / one).exists() for one in where)
