"""T5, T6, T7: ranks that run out of data before the others, or have none."""

from __future__ import annotations

import pytest

from fault_jobs import launch_fault, says, succeeds
from launching import needs_mpirun

pytestmark = needs_mpirun

UNEVEN = """
STEPS = [5, 4, 3]
weights = tf.Variable([0.0, 0.0])
@tf.function
def train(factor):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(weights) * factor
    gradient, = tape.gradient(loss, [weights])
    weights.assign_sub(gradient)
    return gradient
means = []
for step in range(STEPS[rank]):
    means.append(round(float((train if {traced} else train.python_function)(tf.constant(rank + step + 1.0))[0]), 3))
say("means", means)
last = int(hvd.join())
weights.assign(hvd.broadcast(weights, last, name="newest"))
say("end", weights.numpy().tolist(), "last", last)
"""


@pytest.mark.parametrize("traced", [True, False])
def test_t5_mean_is_that_of_the_ranks_with_data(traced: bool) -> None:
    job = launch_fault(3, UNEVEN.replace("{traced}", str(traced)))
    succeeds(job)
    means = [2.0, 3.0, 4.0, 4.5, 5.0]
    for rank in range(3):
        says(job, rank, f"means {means[: 5 - rank]}", "end [-18.5, -18.5] last 0")


SPARSE = """
table = np.zeros([3, 2])
for step in range([5, 3][rank]):
    slices = tf.IndexedSlices(tf.fill([2, 2], rank + 1.0), tf.constant([rank, 2]), dense_shape=(3, 2))
    table += tf.convert_to_tensor(hvd.allreduce(slices, name="slices")).numpy()
if rank == 0:
    say("broadcast", hvd.broadcast(tf.constant([1.0, 2.0]), 0, name="alone").numpy().tolist())
    say("table", table.tolist())
say("last", int(hvd.join()))
"""


def test_t6_sparse_gradients_and_a_broadcast_go_on() -> None:
    job = launch_fault(2, SPARSE)
    succeeds(job)
    # Three averages over both, and two over rank 0 alone.
    says(job, 0, "table [[3.5, 3.5], [3.0, 3.0], [6.5, 6.5]]", "broadcast [1.0, 2.0]", "last 0")
    says(job, 1, "last 0")


NONE = """
if rank == 0:
    for step in range(5):
        gradient = tf.constant([0.1 * step, -3.0])
        say("same", np.array_equal(hvd.allreduce(gradient, name="gradient"), gradient))
say("last", int(hvd.join()))
"""


def test_t7_rank_without_data_from_the_start() -> None:
    job = launch_fault(2, NONE)
    succeeds(job)
    says(job, 0, "same True", "last 0")
    assert "same False" not in job.of(0)
    says(job, 1, "last 0")
