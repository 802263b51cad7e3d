"""A graph that holds our operations outlives its process: exported, imported in a fresh one, edited, exported, run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launching import GRAPH_MODE, SAY, Job, launch, launch_script, needs_mpirun

pytestmark = needs_mpirun

EXPORT = """
fed = v1.placeholder(tf.float32, [2], name="fed")
weight = v1.get_variable("weight", initializer=[10.0, 20.0])
tf.identity(hvd.allreduce(fed, average=False) + hvd.broadcast(weight, 0), name="result")
tf.identity(hvd.allgather(fed), name="rows")
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    if rank == 0:
        v1.train.Saver().save(session, folder + "/first")
say("exported")
"""
# Nothing here knows Python's side of the library when it loads only the operations.
FRESH = """
import os, sys
{say}
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
{load}
from horovod_tf.common import basics
basics.init()
saver = v1.train.import_meta_graph(folder + "/" + source + ".meta")
graph = v1.get_default_graph()
result = graph.get_tensor_by_name("doubled:0" if source == "second" else "result:0")
if source == "first":
    tf.multiply(result, 2.0, name="doubled")
with v1.Session() as session:
    saver.restore(session, folder + "/first")
    feed = {{"fed:0": [basics.rank() + 1.0, 1.0]}}
    values = session.run([result, "rows:0"], feed)
    if source == "first" and basics.rank() == 0:
        v1.train.export_meta_graph(folder + "/second.meta")
rank = basics.rank()
say([value.tolist() for value in values])
"""
LOADS = {
    "operations": (
        "from pathlib import Path\nimport horovod_tf\n"
        'tf.load_op_library(str(Path(horovod_tf.__file__).parent / "ops/libhorovod_tf_ops.so"))'
    ),
    "package": "import horovod_tf.tensorflow",
}


def fresh(load: str, folder: Path, source: str) -> Job:
    program = f"folder, source = {str(folder)!r}, {source!r}\n" + FRESH.format(say=SAY, load=LOADS[load])
    return launch(2, sys.executable, "-c", program)


@pytest.mark.parametrize("load", LOADS)
def test_exported_imported_edited_exported_and_run(tmp_path: Path, load: str) -> None:
    exported = launch_script(2, GRAPH_MODE + f"folder = {str(tmp_path)!r}\n" + EXPORT)
    assert exported.status == 0, exported
    for source, factor in (("first", 1.0), ("second", 2.0)):
        job = fresh(load, tmp_path, source)
        assert job.status == 0, job
        for rank in range(2):
            expected = [[factor * 13.0, factor * 22.0], [1.0, 1.0, 2.0, 1.0]]
            assert job.of(rank) == f"rank {rank}: {expected}", job


GRADIENT = """
with tf.Graph().as_default() as graph:
    x = v1.placeholder(tf.float32, (3,), "x")
    tf.identity(horovod_tf.tensorflow.allreduce(x), "y")
    definition = graph.as_graph_def()
horovod_tf.tensorflow.init()
with tf.Graph().as_default(), v1.Session() as session:
    x = tf.constant([1.0, 2.0, 3.0])
    y, = tf.import_graph_def(definition, {"x": x}, ["y:0"])
    print(session.run(v1.gradients(y, x)[0]).tolist())
"""


@pytest.mark.parametrize("loads", [list(LOADS), list(LOADS)[::-1]], ids=["operations_first", "package_first"])
def test_operations_may_be_loaded_by_hand_too_and_imported_graphs_have_gradients(loads: list[str]) -> None:
    imports = "\n".join(["import tensorflow as tf", "v1 = tf.compat.v1", *(LOADS[load] for load in loads)])
    job = Job([sys.executable, "-c", imports + GRADIENT], [], 60, {"TF_CPP_MIN_LOG_LEVEL": "3"})
    assert job.output == "[1.0, 1.0, 1.0]\n", job
