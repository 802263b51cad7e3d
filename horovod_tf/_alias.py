"""Lets unchanged scripts that import `horovod` find this package."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

_OURS: Final = "horovod_tf"
_THEIRS: Final = "horovod"


def install_as_horovod(average_gradients: bool | None = None) -> None:
    """Makes `import horovod.tensorflow as hvd`, `import horovod.keras as hvd` and so on mean this package.

    To be called before the script's own imports. Loads the native library and TensorFlow. Harmless when repeated.

    Args:
        average_gradients: Whether the gradients of allgather and broadcast are averages over all ranks, as scripts for
            Horovod 0.22 and later expect; False: sums, as before. None: HOROVOD_TF_AVERAGE_GRADIENTS says so, and
            without it they are sums. The same on all ranks.

    Raises:
        ImportError: the real `horovod` has been imported already.
    """
    package = sys.modules[_OURS]
    present = sys.modules.get(_THEIRS, package)
    if present is not package:
        where = getattr(present, "__file__", None) or "an unknown place"
        raise ImportError(
            f"another package named horovod has been imported already, from {where}: call "
            "horovod_tf.install_as_horovod() before anything imports horovod"
        )
    for name in ("tensorflow", "keras", "tensorflow.keras"):
        importlib.import_module(f"{_OURS}.{name}")
    # Every module that is loaded, or Python would load it a second time under the other name.
    ours = {name: module for name, module in sys.modules.items() if _is_ours(name, module)}
    for name, module in ours.items():
        sys.modules[_THEIRS + name[len(_OURS) :]] = module
    importlib.import_module(f"{_OURS}.tensorflow.gradient_convention").set_average_gradients(average_gradients)


def _is_ours(name: str, module: ModuleType | None) -> bool:
    return module is not None and (name == _OURS or name.startswith(_OURS + "."))
