"""What this package has been built with, as scripts ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent


def mpi_built(verbose: bool = False) -> bool:
    """Whether the library for an MPI has been built.

    Args:
        verbose: Of no use.
    """
    del verbose
    return any(_FOLDER.glob("libhorovod_mpi_*.so"))


def mpi_enabled() -> bool:
    """The same: there is no other way to start a job of several processes."""
    return mpi_built()


def nccl_built(verbose: bool = False) -> int:
    """NCCL's version that the library has been built with; 0: none.

    Args:
        verbose: Of no use.
    """
    del verbose
    return 0


def _not_offered(verbose: bool = False) -> bool:
    """False: there is no such backend here.

    Args:
        verbose: Of no use.
    """
    del verbose
    return False


gloo_built = gloo_enabled = ddl_built = ccl_built = cuda_built = rocm_built = _not_offered
