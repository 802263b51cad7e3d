"""A timeline that is started and stopped while the job runs; `mpirun -np N pytest test/mp`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import horovod_tf.tensorflow as hvd
from tensorflow_support import RANK


def rows(path: Path) -> set[str]:
    """Names of the tensors in a file."""
    events: list[dict[str, Any]] = json.loads(path.read_text())
    return {event["args"]["name"] for event in events if event.get("name") == "process_name"}


def test_files_have_what_is_between_start_and_stop(tmp_path: Path) -> None:
    def reduce(name: str) -> None:
        # Ranks that are ahead would ask for it while rank 0 still writes the file before.
        hvd.barrier("others")
        hvd.allreduce(tf.ones([2]), name=name)

    first, second = tmp_path / "first.json", tmp_path / "second.json"
    reduce("before")
    hvd.start_timeline(first)
    hvd.start_timeline(str(first), mark_cycles=True)  # harmless
    reduce("one")
    hvd.start_timeline(str(second))
    reduce("two")
    hvd.stop_timeline()
    hvd.stop_timeline()
    reduce("after")
    if RANK == 0:
        assert rows(first) - {"others"} == {"one"}
        assert rows(second) - {"others"} == {"two"}
        text = first.read_text()
        assert "NEGOTIATE_ALLREDUCE" in text
    else:
        assert not first.exists()
        assert not second.exists()


def test_file_that_cannot_be_made() -> None:
    if RANK == 0:
        with pytest.raises(ValueError, match=r"/nonexistent/folder/timeline\.json"):
            hvd.start_timeline("/nonexistent/folder/timeline.json")
    with pytest.raises(ValueError, match="path"):
        hvd.start_timeline("")


def test_without_a_job() -> None:
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.start_timeline("timeline.json")
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.stop_timeline()
    hvd.init()
