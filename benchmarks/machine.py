"""What the benchmarks ran on, in words."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def field(text: str, name: str) -> str:
    """The value of the first `name: value` in a file of /proc; empty if there is none."""
    for line in text.splitlines():
        found, colon, value = line.partition(":")
        if colon and found.strip() == name:
            return value.strip()
    return ""


def read(path: str) -> str:
    """Empty where there is no such file."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def machine() -> str:
    """Processor, cores that may be used, memory and system."""
    name = field(read("/proc/cpuinfo"), "model name") or platform.machine()
    kib = field(read("/proc/meminfo"), "MemTotal").split()
    memory = f"{int(kib[0]) / (1 << 20):.0f} GiB" if kib else "unknown"
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} cores, {memory} of memory, {platform.system()} {platform.release()}"


def versions(lines: Sequence[dict[str, Any]], side: str) -> dict[str, str]:
    """Of what a side ran with, as its lines say."""
    names = ("module", "module_version", "tensorflow", "mpi")
    for line in lines:
        if line.get("side") == side and "module_version" in line:
            return {name: str(line[name]) for name in names}
    return {}


def versions_text(found: dict[str, str]) -> str:
    """In one line."""
    if not found:
        return "not measured"
    return f"{found['module']} {found['module_version']}, TensorFlow {found['tensorflow']}, {found['mpi']}"


def warning(ours: dict[str, str], peer: dict[str, str]) -> str:
    """What makes the comparison unfair; empty if nothing does."""
    names = {"tensorflow": "TensorFlow", "mpi": "MPI"}
    differ = [text for name, text in names.items() if ours and peer and ours[name] != peer[name]]
    return f"ours and the peer ran with different versions of {' and '.join(differ)}" if differ else ""
