"""Learns vectors of words from text, with sparse gradients; words that are used alike get vectors that are alike.

    python examples/word_embeddings.py
    mpirun -np 2 python examples/word_embeddings.py --steps 8000

The text is Python's own language reference, which every Python has with it. A step touches a few rows of a table of
vectors, so its gradient is a `tf.IndexedSlices`: DistributedOptimizer gathers the rows of all ranks instead of adding
up tables that are almost all zeros. Rank 0 prints the nearest neighbours of some words; the exit status is not 0 if
any two ranks hold different vectors.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import re
import sys
import time
from pydoc_data.topics import topics
from typing import Any

# TensorFlow says much when it starts; what goes wrong comes as an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

import horovod_tf.tensorflow as hvd

v1 = tf.compat.v1
WORDS = 1000  # the most frequent ones
WIDTH = 64  # numbers per vector
WINDOW = 2  # words to the left and to the right that belong to a word's context
SHOWN = ("function", "class", "exception", "import", "true", "three")


def read_text() -> tuple[list[str], Any]:
    """The words, most frequent first, and the text as numbers of words: int64 [n]. Rarer words are left out of both."""
    text = re.findall(r"[a-z]+", " ".join(topics[name] for name in sorted(topics)).lower())
    words = [word for word, _ in collections.Counter(text).most_common(WORDS)]
    number = {word: index for index, word in enumerate(words)}
    return words, np.array([number[word] for word in text if word in number], np.int64)


def pairs_of(text: Any, part: int, parts: int, rare_above: float = 1e-3) -> Any:
    """Every word of this part of the text with each word of its context: int64 [n, 2].

    Frequent words are left out at random, the more frequent the more often: they say little about their neighbours.
    """
    share = np.bincount(text)[text] / len(text)
    kept = np.random.RandomState(0).random_sample(len(text)) < np.sqrt(rare_above / share)
    mine = np.array_split(text[kept], parts)[part]
    near = [np.stack([mine[:-distance], mine[distance:]], 1) for distance in range(1, WINDOW + 1)]
    return np.concatenate([*near, *(pair[:, ::-1] for pair in near)])


def batches(pairs: Any, size: int) -> Any:
    """Endless batches of pairs in random order: two tensors, int64 [size] and int64 [size, 1]."""
    data = tf.data.Dataset.from_tensor_slices(pairs).shuffle(len(pairs), seed=hvd.rank())
    batch = v1.data.make_initializable_iterator(data.repeat().batch(size, drop_remainder=True))
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, batch.initializer)
    pair = batch.get_next()
    return pair[:, 0], pair[:, 1:]


def nearest(vectors: Any, word: int, count: int = 5) -> Any:
    """Numbers of the words whose vectors have the smallest angles to that of `word`: int64 [count]."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.argsort(-(unit @ unit[word]))[1 : count + 1]


def train(text: Any, steps: int, batch: int) -> tuple[Any, bool]:
    """The vectors, float32 [WORDS, WIDTH], and whether all ranks have the same."""
    word, context = batches(pairs_of(text, hvd.rank(), hvd.size()), batch)
    vectors = v1.get_variable("vectors", [WORDS, WIDTH], initializer=v1.random_uniform_initializer(-0.05, 0.05))
    weights = v1.get_variable("weights", [WORDS, WIDTH], initializer=v1.zeros_initializer())
    biases = v1.get_variable("biases", [WORDS], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(
        tf.nn.nce_loss(weights, biases, context, tf.nn.embedding_lookup(vectors, word), 16, num_classes=WORDS)
    )

    optimizer = hvd.DistributedOptimizer(v1.train.AdagradOptimizer(0.5))
    gradients = optimizer.compute_gradients(loss)
    kinds = {variable.op.name: type(gradient).__name__ for gradient, variable in gradients}
    train_step = optimizer.apply_gradients(gradients, global_step=v1.train.get_or_create_global_step())
    my_digest = v1.placeholder(tf.uint8, [1, 32])
    all_digests = hvd.allgather(my_digest)
    first = hvd.rank() == 0
    if first:
        print(f"gradients: {kinds}", flush=True)

    threads = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    with v1.train.MonitoredTrainingSession(hooks=hooks, config=threads) as session:
        losses = []
        begin = time.monotonic()
        for step in range(1, steps + 1):
            losses.append(session.run([train_step, loss])[1])
            if first and (step % 500 == 0 or step == steps):
                rate = len(losses) * batch * hvd.size() / (time.monotonic() - begin)
                print(f"step {step:5}/{steps}  loss {np.mean(losses):.3f}  {rate:.0f} pairs/s", flush=True)
                losses, begin = [], time.monotonic()
        learned = session.run(vectors)
        mine = np.frombuffer(hashlib.sha256(learned.tobytes()).digest(), np.uint8)[np.newaxis]
        return learned, bool((session.run(all_digests, {my_digest: mine}) == mine).all())


def main() -> int:
    """Runs the job; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=512, help="pairs per rank and step (default: %(default)s)")
    arguments = parser.parse_args()

    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)
    hvd.init()
    v1.set_random_seed(hvd.rank())  # run again, it says the same; each rank draws negative samples of its own
    words, text = read_text()
    if hvd.rank() == 0:
        print(f"{len(text)} words of text, {hvd.size()} ranks", flush=True)
    vectors, equal = train(text, arguments.steps, arguments.batch)
    if hvd.rank() == 0:
        for word in SHOWN:
            print(f"{word:>10}: {' '.join(words[near] for near in nearest(vectors, words.index(word)))}")
        print(f"vectors of all {hvd.size()} ranks: {'bitwise equal' if equal else 'DIFFERENT'}", flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
