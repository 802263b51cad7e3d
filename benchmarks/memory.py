"""How much memory of this process is resident."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """MiB that are resident: the process's own, and shared memory (not files)."""

    anonymous: float
    shared: float

    def since(self, before: Memory) -> Memory:
        """What has been added."""
        return Memory(self.anonymous - before.anonymous, self.shared - before.shared)


def resident(status: str) -> Memory:
    """From the text of /proc/self/status, which counts in KiB."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    own, shared = (int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssShmem"))
    return Memory(own, shared)


def memory_now() -> Memory:
    """After free memory of the allocator has gone back to the system: it belongs to nobody."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident(Path("/proc/self/status").read_text())
