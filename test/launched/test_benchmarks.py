"""The benchmarks measure what they are asked for, and what they measure is right. Nothing here depends on a time."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import pytest

from launching import Job, launch, needs_mpirun
from support import ROOT

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
BENCHMARKS = ROOT / "benchmarks"
SECONDS = 115


def lines_of(job: Job) -> list[dict[str, Any]]:
    """What a benchmark that succeeds has measured."""
    assert job.status == 0, job
    found = [json.loads(line) for line in job.output.splitlines() if line.startswith("{")]
    for line in found:
        assert line["ranks"] == 2, line
        assert line["tensorflow"].startswith("2."), line
    return found


def benchmark(script: str, *arguments: str) -> list[dict[str, Any]]:
    """Its measurements on two ranks."""
    return lines_of(launch(2, sys.executable, str(BENCHMARKS / script), *arguments, seconds=SECONDS))


@needs_mpirun
def test_collectives_of_every_kind_and_type_are_measured_and_right() -> None:
    kinds, types = ("allreduce", "allgather", "broadcast"), ("float32", "float16", "bfloat16")
    options = ["--kinds", ",".join(kinds), "--types", ",".join(types), "--raw-mpi", "--seconds", "0.01"]
    found = benchmark("collectives.py", "--sizes", "4,1002", "--counts", "1,3", *options)
    own = [line for line in found if line["module"] == "horovod_tf.tensorflow"]
    measured = [(line["kind"], line["dtype"], line["count"]) for line in own]
    assert measured == [(kind, dtype, count) for dtype in types for count in (1, 1, 3, 3) for kind in kinds]
    for line in found:
        assert line["wrong"] == 0, line
        assert line["time_us"] > 0
    for line in own:
        assert line["noop_us"] > 0
        if line["kind"] == "allreduce" and line["dtype"] != "float32":
            assert 0 < line["roundings"] <= 1, "more than one rounding of the exact sum"
    assert sum(line["module"] == "mpi" for line in found) == 4


@needs_mpirun
def test_training_is_measured_with_equal_weights_and_without_communication() -> None:
    (coupled,) = benchmark("training.py", "--models", "cnn", "--seconds", "0.01")
    assert (coupled["model"], coupled["parameters"], coupled["wrong"]) == ("cnn", 408986, 0)
    assert coupled["time_ms"] > 0
    (alone,) = benchmark("training.py", "none", "--models", "cnn", "--seconds", "0.01")
    assert (alone["module"], alone["wrong"]) == ("none", -1)


@needs_mpirun
def test_idle_cost_and_memory_are_measured() -> None:
    found = benchmark("idle.py", "--seconds", "0.1", "--late", "0.1", "--memory-cases", "10x1KiB")
    assert [(line["kind"], line.get("stage")) for line in found] == [
        ("memory", "init"),
        ("memory", "10x1KiB"),
        ("idle", None),
        ("waiting", None),
    ]
    assert all(line["core"] >= 0 for line in found[2:])


def test_tf_distribute_is_measured_and_right() -> None:
    options = ["--cases", "1x4,3x1KiB", "--seconds", "0.01", "--limit", "100"]
    job = Job([sys.executable, str(BENCHMARKS / "tf_distribute.py"), *options], [], SECONDS, {})
    assert [(line["case"], line["wrong"]) for line in lines_of(job)] == [("1x4", 0), ("3x1KiB", 0)]


def test_tf_distribute_that_takes_too_long_is_ended() -> None:
    job = Job([sys.executable, str(BENCHMARKS / "tf_distribute.py"), "--limit", "0.5"], [], SECONDS, {})
    assert job.status == 1, job
    assert "worker 0 failed or was ended" in job.errors, job
    assert not job.output
