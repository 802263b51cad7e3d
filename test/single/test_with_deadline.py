"""tools/with_deadline: statuses, signals, and what it says about a program that hangs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import ROOT, Run

TOOL = str(ROOT / "tools/with_deadline")
HANG = """
import threading, time
def waits_for_ever():
    time.sleep(1000)
threading.Thread(target=waits_for_ever, daemon=True).start()
print('ready', flush=True)
time.sleep(1000)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone_within(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.parametrize("status", [0, 1, 7, 124])
def test_exit_status_passes_through(run: Run, status: int) -> None:
    done = run(TOOL, "20", "sh", "-c", f"echo out; echo err >&2; exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\n", "err\n")


def test_death_by_signal_becomes_128_plus_its_number(run: Run) -> None:
    assert run(TOOL, "20", "sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV


def test_arguments_reach_the_command_unchanged(run: Run) -> None:
    done = run(TOOL, "20", "printf", "%s|", "a b", "*", "", "$x")
    assert done.stdout == "a b|*||$x|"


@pytest.mark.parametrize("arguments", [[], ["5"], ["soon", "true"], ["0", "true"], ["-1", "true"], ["nan", "true"]])
def test_wrong_arguments_say_the_usage(run: Run, arguments: list[str]) -> None:
    done = run(TOOL, *arguments)
    assert done.returncode == 125
    assert "with_deadline SECONDS COMMAND" in done.stderr


def test_missing_command_is_127(run: Run) -> None:
    done = run(TOOL, "5", "no-such-command-here")
    assert done.returncode == 127
    assert "no-such-command-here" in done.stderr


def test_hang_of_python_prints_every_thread_and_is_124(run: Run) -> None:
    started = time.monotonic()
    done = run(TOOL, "1.5", sys.executable, "-c", HANG)
    assert done.returncode == 124
    assert 1.5 <= time.monotonic() - started < 60
    assert "limit of 1.5 s exceeded" in done.stderr
    assert "waits_for_ever" in done.stderr.partition("Fatal Python error")[2]


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_hang_of_a_native_program_prints_its_stack(run: Run) -> None:
    done = run(TOOL, "0.5", "sleep", "1000")
    assert done.returncode == 124
    assert "nanosleep" in done.stderr


def test_limit_ends_the_whole_group_and_nobody_else(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        pid_file = tmp_path / "pid"
        # The grandchild ignores the friendly signals and sits in a with_deadline of its own.
        script = f"trap '' TERM; {TOOL} 500 sh -c 'echo $$ >{pid_file}; exec sleep 1000' & sleep 1000"
        done = subprocess.run([TOOL, "2", "bash", "-c", script], capture_output=True, timeout=60, check=False)
        assert done.returncode == 124
        assert gone_within(int(pid_file.read_text()), 5)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_is_handed_on_to_the_group(number: signal.Signals) -> None:
    tool = subprocess.Popen([TOOL, "60", sys.executable, "-c", HANG], stdout=subprocess.PIPE, text=True)
    assert tool.stdout is not None
    assert tool.stdout.readline() == "ready\n"
    os.kill(tool.pid, number)
    # Python turns SIGINT into KeyboardInterrupt and then dies of it.
    assert tool.wait(timeout=30) == 128 + number
    tool.stdout.close()


def test_pytest_prints_stacks_and_fails_when_a_test_hangs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_hang.py").write_text("import time\ndef test_hang():\n    time.sleep(1000)\n")
    config = str(ROOT / "pyproject.toml")
    done = run(
        sys.executable, "-m", "pytest", "-c", config, "-o", "faulthandler_timeout=1", str(tmp_path), cwd=tmp_path
    )
    assert done.returncode != 0
    assert "in test_hang" in done.stderr
