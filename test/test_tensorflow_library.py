"""How the library of operations is found, refused and named: nothing here needs a peer."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from horovod_tf.tensorflow import auto_control, mpi_ops
from support import Run
from tensorflow_support import only_rank_0


def test_tensorflow_still_has_the_list_that_keeps_reductions_concurrent() -> None:
    present = getattr(auto_control_deps, auto_control.LIST_NAME)
    assert set(mpi_ops.OP_TYPES) <= present


def test_library_for_another_tensorflow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"has not been built: run `make ops"):
        mpi_ops.check_built_for(tf.__version__, tmp_path)
    with pytest.raises(ImportError) as caught:
        mpi_ops.check_built_for("1.2.3")
    assert all(text in str(caught.value) for text in (tf.__version__, "1.2.3", "make ops"))


PROGRAM = """
import horovod_tf
horovod_tf.install_as_horovod()
horovod_tf.install_as_horovod()
import horovod.keras
import horovod.tensorflow as hvd
from horovod.tensorflow.mpi_ops import _allreduce
import horovod_tf.tensorflow, tensorflow as tf
assert hvd is horovod_tf.tensorflow
for call in (hvd.size, hvd.rank, lambda: hvd.allreduce(tf.ones(3))):
    try:
        call()
    except (ValueError, tf.errors.FailedPreconditionError) as error:
        print(type(error).__name__, error)
hvd.init()
print(_allreduce(tf.ones(3)).numpy().tolist())
hvd.shutdown()
try:
    _allreduce(tf.ones(3))
except tf.errors.UnknownError as error:
    print("has been shut down" in error.message)
hvd.init()
print(hvd.size())
"""
REFUSED = """
import sys, types
sys.modules["horovod"] = types.ModuleType("horovod")
import horovod_tf
horovod_tf.install_as_horovod()
"""


@only_rank_0
def test_script_written_for_the_reference_system(run_python: Run) -> None:
    done = run_python(PROGRAM, TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["ValueError", "ValueError", "FailedPreconditionError"]
    assert lines[3:] == ["[1.0, 1.0, 1.0]", "True", "1"]
    refused = run_python(REFUSED)
    assert "another package named horovod has been imported already" in refused.stderr
