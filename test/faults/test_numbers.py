"""T25, T26, T30, T32, T33, T34, T50: values that are silently wrong, or differ between ranks or runs."""

from __future__ import annotations

import pytest

from fault_jobs import LIMIT, FaultError, fails, gives, keras_module, launch_fault, succeeds, told
from launching import Job, launch_script, needs_mpirun

pytestmark = needs_mpirun

PERTURBED = """
weights = [tf.Variable(tf.ones([3]), name="first"), tf.Variable(tf.ones([2, 2]), name="second")]
for step in range(20):
    gradients = [hvd.allreduce(tf.ones(weight.shape) * (rank + step)) for weight in weights]
    for weight, gradient in zip(weights, gradients):
        weight.assign_sub(0.01 * gradient)
    if step == 7 and rank == 1:
        {perturb}
    if step % 5 == 4:
        try:
            hvd.check_consistency(weights)
        except Exception as error:
            say("told at", step, error)
            raise
say("no error")
"""
PERTURBATIONS = {
    "one_weight": "weights[1].assign_add([[0.0, 1e-3], [0.0, 0.0]])",
    "last_bit": "weights[1].assign(np.nextafter(weights[1].numpy(), np.float32(9)))",
}


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_t25_check_names_the_variable_and_the_rank_within_five_steps(perturbation: str) -> None:
    job = launch_fault(2, PERTURBED.format(perturb=PERTURBATIONS[perturbation]))
    fails(job)
    for rank in range(2):
        told(job, rank, "told at 9", "second", "rank 1")


LAZY = f"""
import hashlib
import {keras_module()} as hvd_keras
np.random.seed(rank)
tf.random.set_seed(rank)
late = {{late}}
layers = [tf.keras.layers.Dense(4), tf.keras.layers.Dense(4)]
optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.01))
x = tf.random.normal([8, 4])
layers[0].build((None, 4))
if not late:
    layers[1].build((None, 4))
def variables():
    return [variable for layer in layers if layer.built for variable in layer.trainable_variables]
for variable in variables():
    value = hvd.broadcast(tf.convert_to_tensor(variable), 0, name="start_%d" % len(variable.shape))
    variable.assign(value)
for step in range(5):
    with tf.GradientTape() as tape:
        y = layers[0](x)
        if not late or step >= 3:
            y = layers[1](y)
        loss = tf.reduce_mean(tf.square(y - 1.0))
    gradients = tape.gradient(loss, variables())
    if late and step == 3:
        optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.01))
    optimizer.apply_gradients(zip(gradients, variables()))
{{check}}
state = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
everything = b"".join(np.asarray(tf.convert_to_tensor(one)).tobytes() for one in [*variables(), *state])
say("digest", hashlib.sha256(everything).hexdigest())
"""


def digests(job: Job) -> set[str]:
    return {line.split("digest ")[1] for line in job.output.splitlines() if "digest " in line}


def test_t26_variables_and_slots_are_equal_after_a_broadcast_at_the_start() -> None:
    job = launch_script(2, LAZY.format(late=False, check=""), seconds=LIMIT)
    succeeds(job)
    if len(digests(job)) != 1:
        raise FaultError("wrong value", job)


def test_t26_layer_that_is_built_late_is_an_error_that_names_it() -> None:
    check = """
try:
    hvd.check_consistency(variables())
except Exception as error:
    say("told", error)
    raise
"""
    job = launch_fault(2, LAZY.format(late=True, check=check))
    fails(job)
    for rank in range(2):
        told(job, rank, "kernel")


ACCUMULATED = {
    "dense": """
def gradient_of(weight, rows):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.matmul(rows, weight))
    return tape.gradient(loss, weight)
parts = [tf.ones([2, 3]) * (rank + 1.0 + i) for i in range(3)]
accumulated = tf.add_n([gradient_of(weight, part) for part in parts])
whole = gradient_of(again, tf.concat(parts, 0))
""",
    "sparse": """
def gradient_of(weight, rows):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(weight, rows))
    return tape.gradient(loss, weight)
parts = [tf.constant([rank, i]) for i in range(3)]
of_parts = [gradient_of(weight, part) for part in parts]
accumulated = tf.IndexedSlices(
    tf.concat([one.values for one in of_parts], 0), tf.concat([one.indices for one in of_parts], 0), weight.shape)
whole = gradient_of(again, tf.concat(parts, 0))
""",
}


@pytest.mark.parametrize("kind", ACCUMULATED)
def test_t30_three_small_batches_are_one_large_batch(kind: str) -> None:
    job = launch_script(
        2,
        "weight, again = tf.Variable(tf.ones([3, 2])), tf.Variable(tf.ones([3, 2]))\n"
        + ACCUMULATED[kind]
        + """
for variable, gradient in ((weight, accumulated), (again, whole)):
    average = hvd.allreduce(gradient)
    if isinstance(average, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(average.values * 0.5, average.indices))
    else:
        variable.assign_sub(0.5 * average)
say("same", np.array_equal(weight.numpy(), again.numpy()), "moved", bool((weight.numpy() != 1).all()))
""",
        seconds=LIMIT,
    )
    succeeds(job)
    for rank in range(2):
        gives(job, rank, "same True moved True")


def test_t32_sum_of_integers_and_average_by_default() -> None:
    job = launch_script(
        3,
        "say('sum', hvd.allreduce(tf.constant([1, 2]) * (rank + 1), average=False).numpy())\n"
        "say('default', hvd.allreduce(tf.constant([1.0, 2.0]) * (rank + 1)).numpy())\n",
        seconds=LIMIT,
    )
    succeeds(job)
    for rank in range(3):
        gives(job, rank, "sum [ 6 12]", "default [2. 4.]")


def test_t32_average_of_integers_is_truncated_toward_zero() -> None:
    """As documented, of every type and kind: 5 of three ranks are 1, and -5 are -1."""
    job = launch_script(
        3,
        """
for dtype in (tf.int8, tf.int32, tf.int64):
    mine = tf.constant([rank ** 2, -(rank ** 2)], dtype)
    dense = hvd.allreduce(mine)
    grouped = hvd.grouped_allreduce([mine])[0]
    assert dense.dtype == grouped.dtype == dtype
    say("average of", dtype.name, dense.numpy(), grouped.numpy())
sparse = tf.IndexedSlices(tf.constant([[5, -5]]), tf.constant([rank]), tf.constant([3, 2]))
say("sparse", hvd.allreduce(sparse).values.numpy().tolist())
say("instead", hvd.allreduce(tf.cast(tf.constant([rank ** 2]), tf.float64)).numpy())
""",
        seconds=LIMIT,
    )
    succeeds(job)
    for rank in range(3):
        gives(job, rank, *(f"average of {name} [ 1 -1] [ 1 -1]" for name in ("int8", "int32", "int64")))
        gives(job, rank, "sparse [[1, -1], [1, -1], [1, -1]]", "instead [1.66666667]")


def test_t33_halves_do_not_overflow_and_lose_no_more_than_one_rounding() -> None:
    job = launch_script(
        4,
        """
say("mean", hvd.allreduce(tf.fill([5], tf.constant(20000.0, tf.float16))).numpy().tolist())
exact = size * (1 + 2.0 ** -10)
for dtype, bits in ((tf.float16, 10), (tf.bfloat16, 7)):
    found = hvd.allreduce(tf.cast(tf.fill([5], 1 + 2.0 ** -10), dtype), average=False)
    expected = size * float(tf.cast(1 + 2.0 ** -10, dtype))
    error = float(tf.reduce_max(tf.abs(tf.cast(found, tf.float32) - expected)))
    say(dtype.name, "good" if error <= expected * 2.0 ** -(bits + 1) else error)
""",
        seconds=LIMIT,
    )
    succeeds(job)
    for rank in range(4):
        gives(job, rank, "mean [20000.0, 20000.0, 20000.0, 20000.0, 20000.0]", "float16 good", "bfloat16 good")


REPEATABLE = """
import hashlib
def delayed(value, seconds):
    def wait(given, by):
        time.sleep(float(by))
        return given
    output = v1.numpy_function(wait, [value, seconds], tf.float32)
    output.set_shape(value.shape)
    return output
random = np.random.default_rng(rank)
values = [(random.standard_normal(int(1.2 ** i) + i) * 10.0 ** random.integers(-6, 6)).astype(np.float32)
          for i in range(50)]
delays = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))
digests = set()
with tf.Graph().as_default(), v1.Session() as session:
    seconds = v1.placeholder(tf.float64, [50])
    sums = [hvd.allreduce(delayed(tf.constant(one), seconds[i]), average=False) for i, one in enumerate(values)]
    for _ in range(10):
        found = session.run(sums, {seconds: delays.uniform(0, 0.004, 50)})
        digests.add(hashlib.sha256(b"".join(one.tobytes() for one in found)).hexdigest())
for one in digests:
    say("digest", one)
"""


def test_t34_sums_are_the_same_bits_on_all_ranks_in_all_runs_and_jobs() -> None:
    found: set[str] = set()
    for threshold in ("67108864", "0"):
        job = launch_script(4, REPEATABLE, seconds=LIMIT, HOROVOD_FUSION_THRESHOLD=threshold)
        succeeds(job)
        found |= digests(job)
        if len(found) != 1:
            raise FaultError(f"wrong value, {len(found)} different", job)


def test_t50_gather_with_a_rank_that_has_no_rows_and_its_gradient() -> None:
    job = launch_script(
        2,
        """
@tf.function(input_signature=[tf.TensorSpec([None, 3])])
def program(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        gathered = hvd.allgather(x, name="rows")
        weights = tf.cast(tf.range(tf.shape(gathered)[0]), tf.float32)[:, None] + 10.0 * rank
        loss = tf.reduce_sum(gathered * weights)
    return gathered, tape.gradient(loss, x)
for _ in range(3):
    gathered, gradient = program(tf.ones([5 * rank, 3]) * 7.0)
say("shape", gathered.shape, float(tf.reduce_sum(gathered)), "gradient", gradient.shape, gradient.numpy()[:, 0])
""",
        seconds=LIMIT,
    )
    succeeds(job)
    gives(job, 0, "shape (5, 3) 105.0 gradient (0, 3) []")
    gives(job, 1, "shape (5, 3) 105.0 gradient (5, 3) [10. 12. 14. 16. 18.]")
