"""What the benchmarks compute from their measurements, and what their table says; nothing is measured here."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import benchmark_jobs
import cases
import drawing
import figures
import machine
import memory
import table
import targets


def line(side: str, job: str = "collectives", **what: object) -> dict[str, Any]:
    """A measurement of an allreduce on two ranks."""
    common = {"side": side, "job": job, "kind": "allreduce", "dtype": "float32", "ranks": 2, "round": 1, "wrong": 0}
    return {**common, **what}


def outcome(job: benchmark_jobs.Job, status: int = 0, tail: str = "", *lines: dict[str, Any]) -> benchmark_jobs.Outcome:
    return benchmark_jobs.Outcome(job, status, list(lines), tail)


def rows(lines: list[dict[str, Any]], wanted: str, *failed: tuple[str, str]) -> list[tuple[str, ...]]:
    results = targets.Results(lines, failed)
    return [row.cells for row in targets.rows_of(results, {wanted}, [2, 4])]


def test_the_slowest_rank_of_each_repetition_counts_and_then_the_median() -> None:
    assert figures.median_of_slowest([[1, 9, 3], [5, 2, 4]]) == 5
    assert figures.median_of_slowest([[1, 2, 3, 4]]) == 2.5


def test_calls_fill_the_time_but_are_one_at_least() -> None:
    assert figures.calls_for(1.0, 5, 0.01) == 20
    assert figures.calls_for(1.0, 5, 10.0) == 1
    assert figures.calls_for(1.0, 5, 0.0, most=7) == 7


@pytest.mark.parametrize(
    ("kind", "ranks", "algorithm", "bus"),
    [
        ("allreduce", 2, 1.0, 1.0),
        ("allreduce", 4, 1.0, 1.5),
        ("allgather", 4, 4.0, 3.0),
        ("broadcast", 4, 1.0, 1.0),
        ("allreduce", 1, 1.0, 0.0),
        ("broadcast", 1, 1.0, 0.0),
    ],
)
def test_bandwidths(kind: str, ranks: int, algorithm: float, bus: float) -> None:
    assert figures.algorithm_bandwidth(kind, 10**9, ranks, 1.0) == pytest.approx(algorithm)
    assert figures.bus_bandwidth(kind, 10**9, ranks, 1.0) == pytest.approx(bus)


def test_small_bandwidths_do_not_become_zero() -> None:
    assert figures.digits(0.0000123456) == 0.00001235
    assert figures.digits(12345.6) == 12350


def test_sizes_and_cases_by_name() -> None:
    assert [cases.parse_size(text) for text in ("4", "1KiB", "64MiB")] == [4, 1024, 64 << 20]
    assert [cases.size_text(size) for size in (4, 1000, 1024, 64 << 20)] == ["4", "1000", "1KiB", "64MiB"]
    resnet = cases.parse_case("resnet50", "float32")
    assert (len(resnet.shapes), resnet.elements, resnet.bytes) == (161, 25557032, 102228128)
    many = cases.parse_case("1000x1KiB", "float16")
    assert (many.name, many.shapes[0], len(many.shapes), many.bytes) == ("1000x1KiB", (512,), 1000, 1024000)
    assert cases.parse_case("1x8MiB:bfloat16", "float32").elements == 4 << 20
    assert cases.parse_case("1x1", "float32").shapes == [(1,)]
    for text in ("", "resnet", "0x4", "1x4kB", "1x4:int32"):
        with pytest.raises(ValueError, match=r"is no\b|is none"):
            cases.parse_case(text, "float32")


def test_sizes_and_counts_are_combined_and_nothing_is_measured_twice() -> None:
    found = cases.parse_cases("2x4,resnet50", "4,1KiB", "1,2", "float32,float16")
    assert [(case.name, case.dtype) for case in found[:5]] == [
        ("2x4", "float32"),
        ("resnet50", "float32"),
        ("1x4", "float32"),
        ("1x1KiB", "float32"),
        ("2x1KiB", "float32"),
    ]
    assert len(found) == 10


def test_values_have_exact_results_and_roundings_are_counted() -> None:
    np = pytest.importorskip("numpy")
    values = pytest.importorskip("values")
    a, b = (values.whole(rank, 0, 1000, 0) for rank in range(2))
    assert (a != b).all(), "a rank that sends another's values must be noticed"
    assert (values.whole(0, 1, 1000, 0) != a).all()
    assert (values.whole(0, 0, 1000, 1) != a).all()
    assert values.expected("allreduce", [a, b], 0).tolist() == (a + b).tolist()
    assert values.expected("broadcast", [a, b], 1).tolist() == b.tolist()
    assert values.expected("allgather", [a, b], 0).tolist() == [*a, *b]
    halves = [values.fractions(rank, 0, 1000).astype(np.float16).astype(np.float64) for rank in range(3)]
    exact = values.expected("allreduce", halves, 0)
    assert 0 < values.roundings(exact.astype(np.float16), exact, "float16") <= 1
    assert values.roundings(np.array([1.0]), np.array([1.0 + 2**-8]), "bfloat16") == 1.0
    assert values.roundings(np.array([1.0]), np.array([1.0 + 2**-7]), "bfloat16") == 2.0
    assert values.roundings(np.zeros(0), np.zeros(0), "float16") == 0


def test_memory_is_read_from_what_the_kernel_says() -> None:
    status = "Name:\tx\nRssAnon:\t    2048 kB\nRssFile:\t 1 kB\nRssShmem:\t    512 kB\n"
    before = memory.resident(status)
    assert before == (2.0, 0.5)
    assert memory.Memory(5.0, 0.5).since(before) == (3.0, 0.0)


def test_verdicts() -> None:
    assert targets.verdict(0.1, 0.1, at_least=False) is True
    assert targets.verdict(0.11, 0.1, at_least=False) is False
    assert targets.verdict(0.85, 0.85, at_least=True) is True
    assert targets.verdict(0.84, 0.85, at_least=True) is False
    assert targets.verdict(None, 0.85, at_least=True) is None
    assert targets.divide(1.0, 0.0) is None


def test_numbers_for_people() -> None:
    shown = [targets.with_unit(value, "us") for value in (0.0, 0.5, 12.345, 999.6, 1234.0, 123456.0)]
    assert shown == ["0 us", "0.5 us", "12.35 us", "1000 us", "1.23 ms", "123 ms"]
    assert targets.with_unit(0.0123, "core") == "1.23 %"
    assert targets.with_unit(3.0, "MiB") == "3.00 MiB"


def test_a_row_takes_the_median_of_the_rounds_and_divides() -> None:
    lines = [line("ours", case="1x4", time_us=value, noop_us=40.0, round=i) for i, value in enumerate((90, 500, 100))]
    lines += [line("peer", case="1x4", time_us=1000.0), line("mpi", case="1x4", time_us=2.0)]
    lines += [line("tf.distribute", "tf_distribute", case="1x4", time_us=1500.0)]
    # Neither other sizes nor other jobs nor other numbers of ranks have a part in it.
    lines += [line("ours", case="1x8", time_us=1.0), line("ours", "sweep", case="1x4", time_us=1.0)]
    lines += [line("ours", case="1x4", ranks=4, time_us=1.0)]
    against_peer, against_limit = rows(lines, "P1")
    assert against_peer[3:] == ("100 us", "1.00 ms", "1.50 ms", "2.00 us", "-", "0.1", "<= 0.1 x peer", "yes")
    assert against_limit[7:] == ("empty step + 60 us: 100 us", "1.00", "<= 1.00 x limit", "yes")


def test_a_target_that_is_missed_or_not_known_says_so() -> None:
    lines = [
        line("ours", case="resnet50", time_us=60e3),
        line("native", "native", benchmark="shm_backend", tensors=1, us=2e4),
    ]
    against_peer, against_limit = rows(lines, "P2")
    assert against_peer[4] == "-"
    assert against_peer[8:] == ("-", "<= 0.333 x peer", "-")
    assert against_limit[7:] == ("shared memory: 20.00 ms", "3.00", "<= 1.60 x limit", "**no**")


def test_efficiency_is_the_uncoupled_time_by_ours() -> None:
    lines = [line("ours", "training", model="cnn", time_ms=4.0), line("none", "training", model="cnn", time_ms=3.0)]
    cnn, mlp, _ = rows(lines, "P5")
    assert cnn[7:] == ("uncoupled: 3.00 ms", "0.75", ">= 0.85 x limit", "**no**")
    assert mlp[7:] == ("uncoupled: not measured", "-", ">= 0.7 x limit", "-")


def test_more_ranks_have_a_row_each() -> None:
    lines = [line("ours", "more_ranks", case="resnet50", ranks=4, time_us=10.0)]
    lines += [line("peer", "more_ranks", case="resnet50", ranks=4, time_us=40.0)]
    ((*_, ranks, ours, peer, _, _, _, ratio, _, met),) = rows(lines, "P4")
    assert (ranks, ours, peer, ratio, met) == ("4", "10.00 us", "40.00 us", "0.25", "yes")


def test_every_target_has_a_row() -> None:
    found = targets.rows_of(targets.Results([]), table.ALL, [2, 4])
    assert sorted({row.cells[0] for row in found}) == table.ALL
    assert {row.met for row in found if row.cells[0] != "P6"} == {None}
    lines = targets.table(found).splitlines()
    assert len(lines) == len(found) + 2
    assert {text.count("|") for text in lines} == {len(targets.HEADERS) + 1}


def test_what_has_failed_is_in_the_table_and_below_it() -> None:
    options = table.parse_arguments(["--peer-python", "/nowhere/python", "--targets", "P1,P2", "--rounds", "2"])
    ours, peer = table.sides_of(options)
    plan = table.Plan(options, [ours, peer]).jobs()
    bad = next(job for job in plan if job.side == "peer")
    good = [line("ours", case="1x4", time_us=90.0, noop_us=10.0), line("ours", case="resnet50", time_us=9.0, wrong=7)]
    unsupported = line("ours", case="1x8", error="TypeError: no such type")
    outcomes = [
        outcome(plan[0], 0, "", *good, unsupported),
        outcome(bad, 3, "Traceback:\nno module of this name"),
    ]
    text = table.report(outcomes, options.targets, options.ranks, options.rounds)
    assert "| P1 | allreduce of 4 bytes | 2 | 90.00 us | **failed** |" in text
    assert "**FAILED**: collectives-peer-1, status 3:\n\n    Traceback:\n    no module of this name\n" in text
    assert "**WRONG**: ours collectives allreduce resnet50 float32 on 2 ranks: 7 elements" in text
    assert "Not measured: ours collectives allreduce 1x8 float32 on 2 ranks: TypeError: no such type" in text
    assert table.failures_text(outcomes[:0]) == ""
    assert outcome(plan[0]).failed, "a job that measures nothing has failed, whatever its status"


def test_jobs_run_in_turn_each_once_and_only_those_that_are_wanted() -> None:
    options = table.parse_arguments(
        ["--peer-python", "/nowhere/python", "--targets", "P4,P5", "--ranks", "2", "3", "4"]
    )
    plan = table.Plan(options, table.sides_of(options)).jobs()
    assert len({job.title for job in plan}) == len(plan)
    assert [job.side for job in plan if job.name == "more_ranks"] == ["ours", "peer"] * 6
    assert [job.side for job in plan if job.name == "training"] == ["none", "ours", "peer"] * 3
    assert {job.name for job in plan} == {"more_ranks", "training"}
    everything = table.parse_arguments([])
    names = {job.name for job in table.Plan(everything, table.sides_of(everything)).jobs()}
    assert names == {"collectives", "more_ranks", "native", "tf_distribute", "training", "idle", "sweep"}
    assert everything.limit < 300


@pytest.mark.parametrize(
    "words", ["--targets P9", "--rounds 0", "--ranks 0", "--document README.md", "--document none"]
)
def test_options_that_make_no_sense_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        table.parse_arguments(words.split())
    assert ": error: " in capsys.readouterr().err


def test_only_whole_lines_of_json_are_measurements() -> None:
    text = 'noise\n{"a": 1}\n{"b": \n[3]\n'
    assert benchmark_jobs.parse_lines(text) == [{"a": 1}]
    job = benchmark_jobs.Job("collectives", "ours", 2, (), 1)
    (ours, mpi) = benchmark_jobs.tag([{"module": "m"}, {"module": "mpi"}], job)
    assert (ours["side"], ours["job"], ours["round"], mpi["side"]) == ("ours", "collectives", 2, "mpi")


def test_a_job_is_run_and_its_failure_kept(tmp_path: Path) -> None:
    runner = benchmark_jobs.Runner(tmp_path, 100)
    program = "import sys; print('{\"module\": \"m\"}'); print('why', file=sys.stderr); sys.exit(5)"
    job = benchmark_jobs.Job("collectives", "ours", 1, (sys.executable, "-c", program), 60)
    done = runner.run(job)
    assert (done.status, len(done.lines), done.failed, done.tail) == (5, 1, True, "why")
    benchmark_jobs.write_lines(tmp_path, [done])
    (kept,) = (tmp_path / "collectives.jsonl").read_text().splitlines()
    assert json.loads(kept) == {"module": "m", "job": "collectives", "side": "ours", "round": 1}
    assert runner.run(job._replace(command=(str(tmp_path / "nothing"),))).failed


def test_a_job_that_hangs_is_ended_and_later_ones_are_not_begun(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    program = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    job = benchmark_jobs.Job("collectives", "ours", 1, (sys.executable, "-c", program), 2)
    runner = benchmark_jobs.Runner(tmp_path, 100)
    assert runner.run(job).status == 124
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
    runner.until = time.monotonic()
    late = runner.run(job)
    assert late.failed
    assert "not started" in late.tail


def test_launcher_of_an_environment_is_beside_its_interpreter(tmp_path: Path) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.8'\n")
    launcher.chmod(0o755)
    assert table.beside(str(tmp_path / "python"), None) == str(launcher)
    assert table.beside(str(tmp_path / "python"), "other") == "other"
    assert benchmark_jobs.launcher_flags(str(launcher)) == ("--oversubscribe", "--bind-to", "none")
    launcher.write_text("#!/bin/sh\necho 'HYDRA build details:'\n")
    assert benchmark_jobs.launcher_flags(str(launcher)) == ()
    assert benchmark_jobs.launcher_flags(str(tmp_path / "nothing")) == ()


def test_versions_that_differ_are_a_warning() -> None:
    versions = {"module": "m", "module_version": "1", "tensorflow": "2.21.0", "mpi": "Open MPI v4.1.8"}
    lines = [{"side": "ours", **versions}, {"side": "peer", **versions, "tensorflow": "2.15.1"}]
    ours, peer = (machine.versions(lines, side) for side in ("ours", "peer"))
    assert machine.versions_text(ours) == "m 1, TensorFlow 2.21.0, Open MPI v4.1.8"
    assert machine.warning(ours, peer) == "ours and the peer ran with different versions of TensorFlow"
    assert machine.warning(ours, ours) == ""
    assert machine.warning(ours, {}) == ""
    assert machine.field("a\t: 1\nmodel name\t: X: 2\n", "model name") == "X: 2"
    assert "cores" in machine.machine()


def test_results_go_between_the_marks(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("a\n<!-- results -->\nold\n<!-- end of results -->\nb\n")
    table.write_into(document, "new\n")
    assert document.read_text() == "a\n<!-- results -->\nnew\n<!-- end of results -->\nb\n"
    document.write_text("a\n")
    with pytest.raises(ValueError, match="no place for the results"):
        table.write_into(document, "new\n")


def test_the_document_has_a_place_for_the_results(tmp_path: Path) -> None:
    copy = tmp_path / "performance.md"
    copy.write_text((benchmark_jobs.ROOT / "docs/performance.md").read_text())
    table.write_into(copy, "new\n")
    assert "\nnew\n" in copy.read_text()


def test_a_curve_has_its_points_in_order_and_without_any_there_is_no_picture(tmp_path: Path) -> None:
    lines = [line("ours", "sweep", bytes=size, time_us=1.0 * size, busbw=0.0) for size in (8, 4)]
    assert drawing.curves(lines, "time_us") == {"ours, 2 ranks": [(4, 4.0), (8, 8.0)]}
    assert drawing.curves(lines, "busbw") == {}, "zero has no logarithm"
    assert drawing.draw([], tmp_path / "picture.png") == "No picture: no sizes were measured."


def test_without_matplotlib_the_picture_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = drawing.draw([line("ours", "sweep", bytes=4, time_us=1.0)], tmp_path / "picture.png")
    assert "matplotlib" in said
    assert "\n" not in said
