"""Rules about the native sources that no compiler checks: layers, and what the core does without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import ROOT

CORE = ROOT / "horovod_tf/common"
LEAVES = ("mpi", "cuda")
# Which folders of the core a folder may include; "" is c_api and what stands beside it.
LAYERS = {
    "base": {"base"},
    "protocol": {"base", "protocol"},
    "shm": {"base", "protocol", "shm"},
    "transport": {"base", "shm", "transport"},
    "collectives": {"base", "protocol", "shm", "collectives"},
    "runtime": {"base", "protocol", "shm", "transport", "collectives", "runtime", ""},
    "": {"base", "transport", "runtime", ""},
}
# Headers without code of ours, which every layer may include.
FREE = {"horovod_tf/common/export.h", "horovod_tf/common/version.h"}
MAX_LINES = 500

COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(R"\(.*?\)"|"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])+'(?<!\d')""", re.DOTALL
)

# What no core file may contain: (what, pattern, files that may, each with the reason).
FORBIDDEN: list[tuple[str, str, dict[str, str]]] = [
    (
        "reading the environment",
        r"\b(getenv|secure_getenv|setenv|putenv|unsetenv|environ)\b",
        {"base/config.cc": "the one place that reads it"},
    ),
    ("throw", r"\bthrow\b", {}),
    ("assert", r"\bassert\s*\(|<cassert>|<assert\.h>", {}),
    ("goto", r"\bgoto\b", {}),
    ("naked new", r"(?<!operator )\bnew\b", {}),
    ("naked delete", r"(?<!operator )(?<!= )\bdelete\b", {}),
    (
        "malloc and free",
        r"\b(malloc|calloc|realloc|aligned_alloc|free)\s*\(",
        {"runtime/executor.cc": "scratch memory: aligned, and null instead of an exception when there is none"},
    ),
    ("using namespace", r"\busing\s+namespace\b(?!\s+std::(string_view_)?literals)", {}),
    (
        "sleeping",
        r"\b(sleep_for|sleep_until|usleep|nanosleep)\b",
        {"runtime/executor.cc": "a device's ready event can only be polled"},
    ),
    (
        "a thread that outlives its owner",
        r"\.detach\s*\(\)",
        {
            "runtime/assembler.cc": "MPI_Init_thread cannot be interrupted; its thread shares what it may touch",
            "runtime/runtime.cc": "a thread that is stuck in foreign code is left behind, with all it may touch",
        },
    ),
    (
        "a standard mutex, which clang cannot see through",
        r"\bstd::(recursive_|shared_|timed_)?(mutex|lock_guard|unique_lock|scoped_lock|condition_variable)\b",
        {"base/mutex.h": "wraps it", "base/mutex.cc": "wraps it"},
    ),
]
# What the protocol may not contain besides: it is pure, and time is an argument.
IMPURE = (
    r"<(thread|mutex|atomic|condition_variable|future|shared_mutex|fstream|iostream|unistd\.h)>"
    r"|\b(f?printf|f?puts|fopen)\b|::now\s*\(|\bNow\s*\(\)"
)


def core_files() -> list[Path]:
    files = sorted(path for path in CORE.rglob("*") if path.suffix in {".h", ".cc", ".inc"})
    files = [path for path in files if path.relative_to(CORE).parts[0] not in LEAVES]
    assert len(files) > 40, "the core's files were not found"
    return files


def name_of(path: Path) -> str:
    return path.relative_to(CORE).as_posix()


def folder_of(path: Path) -> str:
    return "" if path.parent == CORE else path.relative_to(CORE).parts[0]


def code_of(text: str) -> str:
    """The text with comments and the insides of strings blanked, lines kept; includes stay."""

    def blank(match: re.Match[str]) -> str:
        keep_quotes = '""' if match.group(1) else ""
        return keep_quotes + "\n" * match.group(0).count("\n")

    lines = []
    for line in text.split("\n"):
        lines.append(line.replace('"', "\x00") if line.startswith("#include") else line)
    return COMMENT_OR_STRING.sub(blank, "\n".join(lines)).replace("\x00", '"')


def includes_of(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', code_of(path.read_text()), re.MULTILINE)


def hits(pattern: str, path: Path) -> list[str]:
    found = []
    for number, line in enumerate(code_of(path.read_text()).split("\n"), start=1):
        if re.search(pattern, line):
            found.append(f"{name_of(path)}:{number}: {line.strip()}")
    return found


def test_comments_and_strings_are_not_code() -> None:
    code = code_of(
        '#include "a/new.h"\n'
        "int a; // goto\n"
        'auto s = "throw \\" it"; /* new\n'
        " delete */ auto q = '\"'; go(\"x\"); int n = 1'000;"
    )
    assert code.split("\n") == [
        '#include "a/new.h"',
        "int a; ",
        'auto s = ""; ',
        ' auto q = ; go(""); int n = 1\'000;',
    ]


def test_includes_follow_the_layers() -> None:
    wrong = []
    for path in core_files():
        allowed = LAYERS[folder_of(path)]
        for include in includes_of(path):
            if not include.startswith("horovod_tf/") or include in FREE:
                continue
            parts = Path(include).parts
            target = "" if len(parts) == 3 else parts[2]
            if parts[1] != "common" or target not in allowed:
                wrong.append(f"{name_of(path)} includes {include}")
    assert wrong == []


def test_own_headers_are_included_by_their_path_from_the_root() -> None:
    wrong = []
    for path in core_files():
        quoted = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE)
        wrong += [f"{name_of(path)}: {include}" for include in quoted if not (ROOT / include).exists()]
    assert wrong == []


def test_protocol_is_pure() -> None:
    assert [hit for path in core_files() if folder_of(path) == "protocol" for hit in hits(IMPURE, path)] == []


@pytest.mark.parametrize(("what", "pattern", "allowed"), FORBIDDEN, ids=[row[0] for row in FORBIDDEN])
def test_core_does_without(what: str, pattern: str, allowed: dict[str, str]) -> None:
    found = [hit for path in core_files() if name_of(path) not in allowed for hit in hits(pattern, path)]
    assert found == [], what


@pytest.mark.parametrize(("what", "pattern", "allowed"), FORBIDDEN, ids=[row[0] for row in FORBIDDEN])
def test_every_exception_to_a_rule_is_still_needed(what: str, pattern: str, allowed: dict[str, str]) -> None:
    for name in allowed:
        assert hits(pattern, CORE / name), f"{name} needs no exception to: {what}"


def test_preprocessor_conditionals_are_include_guards_only() -> None:
    exceptions = {
        "base/thread_annotations.h": {"#ifdef __clang__", "#else"},  # clang's annotations
        "collectives/cpu_hints.cc": {"#if defined(__x86_64__)", "#else"},  # one processor's instructions
        "c_api.h": {"#ifdef __cplusplus"},  # a header for C too
        "collectives/reduce_kernels_avx2.cc": {"#if defined(__x86_64__)", "#else"},  # one processor's instructions
    }
    wrong = []
    for path in core_files():
        guard = "HOROVOD_TF_COMMON_" + re.sub(r"[/.]", "_", name_of(path)).upper() + "_"
        conditionals = re.findall(r"^#\s*(?:if|ifdef|ifndef|elif|else)\b.*$", code_of(path.read_text()), re.MULTILINE)
        for line in conditionals:
            if line.strip() not in {f"#ifndef {guard}"} | exceptions.get(name_of(path), set()):
                wrong.append(f"{name_of(path)}: {line}")
    assert wrong == []


def test_files_are_short_enough_to_be_read() -> None:
    long = {name_of(path): lines for path in core_files() if (lines := path.read_text().count("\n")) > MAX_LINES}
    assert long == {}
