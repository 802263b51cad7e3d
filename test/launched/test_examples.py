"""The examples do what they say, alone and as a job, and say what they should."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from launching import Job, launch, needs_mpirun
from support import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 120


def run(ranks: int, script: Path, *arguments: str, **variables: str) -> Job:
    """Runs a script on so many ranks; on one, without a launcher."""
    command = [sys.executable, str(script), *arguments]
    if ranks == 1:
        return Job(command, [], SECONDS, variables)
    return launch(ranks, *command, seconds=SECONDS, **variables)


def output_of(ranks: int, example: str, *arguments: str, **variables: str) -> str:
    """What an example prints that succeeds."""
    job = run(ranks, EXAMPLES / example, *arguments, **variables)
    assert job.status == 0, job
    return job.output


def number(pattern: str, text: str) -> float:
    """What follows `pattern`; right behind it a launcher may put what another rank says."""
    found = re.search(pattern + r"(\d+(?:\.\d+)?(?:e[-+]\d+)?)", text)
    assert found, text
    return float(found[1])


def test_digits_in_one_process() -> None:
    done = output_of(1, "digits_graph.py", "--steps", "200")
    assert "weights of all 1 ranks: bitwise equal" in done
    assert number(r"test accuracy: ", done) >= 0.95
    assert "speed-up" not in done


@needs_mpirun
def test_digits_on_two_ranks_stop_and_resume(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    arguments = ["--checkpoints", str(tmp_path / "saved"), "--save-every", "60"]
    done = output_of(2, "digits_graph.py", *arguments, "--steps", "100", HOROVOD_TIMELINE=str(timeline))
    assert "weights of all 2 ranks: bitwise equal" in done
    assert re.search(r"step +50/100  loss [\d.]+  \d+ images/s", done), done
    assert number(r"speed-up over one process: ", done) > 0
    assert re.search(r"\(one process: \d+ images/s", done), done
    assert "continuing" not in done
    saved = {path.name for path in (tmp_path / "saved").glob("*.index")}
    assert saved == {"model.ckpt-0.index", "model.ckpt-60.index", "model.ckpt-100.index"}
    events = json.loads(timeline.read_text())
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= {event.get("name") for event in events}

    done = output_of(2, "digits_graph.py", *arguments, "--steps", "200", "--baseline", "1e3")
    assert "continuing after step 100" in done
    assert "step  150/200" in done
    assert "step   50/200" not in done
    assert "one process: 1000 images/s" in done
    assert number(r"test accuracy: ", done) >= 0.95
    # Nothing left to train: it only tests.
    done = output_of(2, "digits_graph.py", *arguments, "--steps", "200", "--baseline", "1e3")
    assert "continuing after step 200" in done
    assert "images per second" not in done
    assert "weights of all 2 ranks: bitwise equal" in done


@needs_mpirun
def test_digits_whose_weights_differ_fail(tmp_path: Path) -> None:
    """One rank that changes a weight at the end must be noticed."""
    spoiled = tmp_path / "spoiled.py"
    spoiled.write_text(
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import digits_graph, numpy as np\n"
        "honest = digits_graph.digest\n"
        "def digest(weights):\n"
        "    first, *others = weights\n"
        "    if digits_graph.hvd.rank() == 1:\n"
        "        first = np.nextafter(first, np.float32(9))\n"
        "    return honest([first, *others])\n"
        "digits_graph.digest = digest\n"
        "sys.exit(digits_graph.main())\n"
    )
    job = run(2, spoiled, "--steps", "10", "--baseline", "1")
    assert job.status != 0, job
    assert "weights of all 2 ranks: DIFFERENT" in job.output, job


@needs_mpirun
def test_digits_with_keras_on_two_ranks_and_on_from_the_saved_model(tmp_path: Path) -> None:
    saved = str(tmp_path / "model.keras")
    done = output_of(2, "digits_keras.py", "--epochs", "4", "--model", saved)
    assert "weights of all 2 ranks: bitwise equal" in done
    assert number(r"test accuracy: ", done) >= 0.9
    done = output_of(2, "digits_keras.py", "--epochs", "1", "--model", saved)
    assert "weights of all 2 ranks: bitwise equal" in done
    assert number(r"test accuracy: ", done) >= 0.9


@needs_mpirun
def test_digits_with_a_tape_on_two_ranks() -> None:
    done = output_of(2, "digits_tape.py", "--steps", "300", "--compression", "fp16")
    assert "weights of all 2 ranks: bitwise equal" in done
    assert number(r"test accuracy: ", done) >= 0.9
    assert number(r"step  300/300  loss ", done) < 0.5


@needs_mpirun
@pytest.mark.parametrize("more", [[], ["--mixed"]], ids=["float32", "float16"])
def test_digits_in_several_passes_on_two_ranks(more: list[str]) -> None:
    done = output_of(2, "digits_accumulation.py", "--steps", "100", *more)
    assert "400 passes, 100 steps of 128 images" in done
    assert "weights of all 2 ranks: bitwise equal" in done
    assert number(r"test accuracy: ", done) >= 0.9


@needs_mpirun
def test_word_embeddings_on_two_ranks() -> None:
    done = output_of(2, "word_embeddings.py", "--steps", "60", "--batch", "128")
    kinds = "{'vectors': 'IndexedSlices', 'weights': 'IndexedSlices', 'biases': 'IndexedSlices'}"
    assert f"gradients: {kinds}" in done
    assert re.search(r"step +60/60  loss [\d.]+  \d+ pairs/s", done), done
    assert re.search(r"^ *class: \w+ \w+ \w+ \w+ \w+$", done, re.MULTILINE), done
    assert "vectors of all 2 ranks: bitwise equal" in done


@needs_mpirun
@pytest.mark.skipif(not hasattr(tf.compat.v1, "estimator"), reason="this TensorFlow has no Estimators")
def test_estimator_on_two_ranks_trains_evaluates_predicts_and_resumes(tmp_path: Path) -> None:
    arguments = ["--model-dir", str(tmp_path / "model")]
    predicted = []
    for begin, end in ((0, 200), (200, 230), (230, 230)):
        done = output_of(2, "digits_estimator.py", *arguments, "--steps", str(end))
        assert f"training from step {begin} to {end}" in done
        assert number(rf"step {end}: test accuracy: ", done) >= 0.95
        assert "they are:              [7, 9, 4, 7, 0, 2, 6, 1, 3, 1]" in done
        predicted.append(re.findall(r"\d", done.split("first ten predictions: ")[1][:30]))
        # A processor that rounds otherwise learns otherwise: one of ten may be wrong, as one of 20 is in the accuracy.
        assert sum(found == right for found, right in zip(predicted[-1], "7947026131")) >= 9
    assert predicted[2] == predicted[1]


@pytest.mark.skipif(hasattr(tf.compat.v1, "estimator"), reason="this TensorFlow has Estimators")
def test_estimator_without_estimators_is_one_line() -> None:
    job = run(1, EXAMPLES / "digits_estimator.py")
    assert job.status == 1
    assert job.errors.count("\n") == 1, job
    assert "has no Estimators: the last one that has is 2.15" in job.errors


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=needs_mpirun)])
def test_first_script_of_the_readme_learns(ranks: int, tmp_path: Path) -> None:
    found = re.search(r"```python\n(# first\.py\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found
    script = tmp_path / "first.py"
    script.write_text(found[1])
    job = run(ranks, script)
    assert job.status == 0, job
    for rank in range(ranks):
        # It begins at about 6; how far it comes depends on what is drawn.
        assert number(rf"rank {rank} of {ranks}: loss ", job.output) < 1e-2
