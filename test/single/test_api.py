"""docs/api.md says what there is, and with which parameters."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest

from support import ROOT

try:
    import horovod_tf.keras
    import horovod_tf.tensorflow
    import horovod_tf.tensorflow.keras
except ImportError as error:
    pytest.skip(f"needs TensorFlow and `make ops`: {error}", allow_module_level=True)

STATES = {"same", "better", "not yet", "left out"}


def rows() -> list[tuple[ModuleType, str, str | None, str]]:
    """Module, name, parameters if the table has them, and what the table says."""
    found: list[tuple[ModuleType, str, str | None, str]] = []
    tables = (ROOT / "docs/api.md").read_text().split("`horovod_tf.tensorflow.keras` and")
    for module, table in zip([horovod_tf.tensorflow, horovod_tf.keras], tables):
        for line in re.findall(r"^\| (`.*)$", table, re.MULTILINE):
            names, state = (cell.strip() for cell in line.split("|")[:2])
            for name, parameters in re.findall(r"`([\w.]+)(?:\(([^)]*)\))?`", names):
                has_parameters = f"`{name}(" in names
                found.append((module, name, parameters if has_parameters else None, state))
    return found


def look_up(module: object, name: str) -> object:
    for part in name.split("."):
        module = getattr(module, part)
    return module


@pytest.mark.parametrize(("module", "name", "parameters", "state"), rows(), ids=lambda one: str(one)[:40])
def test_name_is_as_the_table_says(module: ModuleType, name: str, parameters: str | None, state: str) -> None:
    assert state in STATES
    if state == "not yet" or name in {"elastic", "callbacks.BestModelCheckpoint"}:
        assert not hasattr(module, name)
        return
    what = look_up(module, name)
    if parameters is not None:
        assert callable(what)
        assert ", ".join(inspect.signature(what).parameters) == parameters


def test_every_public_name_is_in_the_table() -> None:
    modules = {"keras", "callbacks", "gradients"}
    for module in (horovod_tf.tensorflow, horovod_tf.keras):
        public = {
            name for name, one in vars(module).items() if not name.startswith("_") and not inspect.ismodule(one)
        } - modules
        named = {name for _, name, _, _ in rows()}
        assert public - named == set()


def test_the_two_modules_for_keras_have_the_same_names() -> None:
    here, there = (
        {name for name in vars(module) if not name.startswith("_")}
        for module in (horovod_tf.keras, horovod_tf.tensorflow.keras)
    )
    assert {"callbacks", "DistributedOptimizer"} <= there
    modules = {"loss_scaling", "models", "optimizer", "state", "values"}
    assert there - modules == here - modules
