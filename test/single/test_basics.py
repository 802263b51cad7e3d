"""basics.py on the real library, at size 1: prototypes, answers, errors, exits."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import horovod_tf
from horovod_tf.common import basics
from support import ROOT, Run

QUERIES = [
    basics.rank,
    basics.size,
    basics.local_rank,
    basics.local_size,
    basics.cross_rank,
    basics.cross_size,
    basics.is_homogeneous,
    basics.mpi_threads_supported,
]
NUMBERS = ctypes.POINTER(ctypes.c_int)
C_TYPES = {"int": ctypes.c_int, "const char*": ctypes.c_char_p, "void": None, "int*": NUMBERS, "const int*": NUMBERS}


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """Every test begins and ends with the library stopped."""
    basics.shutdown()
    yield
    basics.shutdown()


def declared() -> dict[str, tuple[list[str], str]]:
    """The functions of c_api.h: name -> (types of arguments, type of result), as written there."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "horovod_tf/common/c_api.h").read_text(), flags=re.DOTALL)
    found = {}
    for match in re.finditer(r"^HVD_EXPORT ([^;()]*?)\s*\b(\w+)\(([^)]*)\);", text, re.MULTILINE):
        result, name, arguments = match.groups()
        types = [re.sub(r"\s*\b\w+$", "", argument.strip()) for argument in arguments.split(",")]
        found[name] = ([] if arguments == "void" else types, result)
    # So that a declaration of another form cannot be overlooked.
    assert sorted(found) == sorted(re.findall(r"\b(horovod_\w+)\(", text))
    return found


def exported() -> dict[str, str]:
    """What the dynamic linker sees: mangled name -> readable name."""
    names = [
        subprocess.run(
            ["nm", "-D", "--defined-only", "--format=posix", *options, str(basics.LIBRARY_PATH)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for options in ([], ["--demangle"])
    ]
    readable = [re.sub(r" [A-Za-z] [0-9a-f]+ [0-9a-f]+\s*$", "", line) for line in names[1]]
    return dict(zip((line.split()[0] for line in names[0]), readable))


def test_prototypes_are_those_of_the_header() -> None:
    wanted = {
        name: ([C_TYPES[argument] for argument in arguments], C_TYPES[result])
        for name, (arguments, result) in declared().items()
    }
    assert wanted == basics.PROTOTYPES


def test_prototypes_are_set_on_the_loaded_library() -> None:
    for name, (argtypes, restype) in basics.PROTOTYPES.items():
        function = getattr(basics._library, name)
        assert (function.argtypes, function.restype) == (argtypes, restype)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_library_exports_the_header_and_its_own_namespace_only() -> None:
    symbols = exported()
    assert {name for name in symbols if name.startswith("horovod_")} == set(declared())
    foreign = {
        readable
        for name, readable in symbols.items()
        if name not in basics.PROTOTYPES and not re.match(r"_Z(N|NK|TVN|TIN|TSN)10horovod_tf", name)
    }
    assert foreign == set()


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_library_exports_what_the_libraries_beside_it_are_built_on() -> None:
    readable = set(exported().values())
    for prefix in (
        "horovod_tf::ProcessEnqueue(",
        "horovod_tf::Status::InvalidArgument(",
        "horovod_tf::Reduce(",
        "horovod_tf::Transport::Broadcast(",
        "vtable for horovod_tf::Transport",
        "typeinfo for horovod_tf::Transport",
    ):
        assert any(name.startswith(prefix) for name in readable), prefix


def test_importing_the_package_loads_nothing_native(run_python: Run) -> None:
    done = run_python(
        "import horovod_tf, horovod_tf.common, sys;"
        "assert 'ctypes' not in sys.modules;"
        "assert 'libhorovod' not in open('/proc/self/maps').read();"
        "import horovod_tf.common.basics;"
        "assert 'libhorovod_common' in open('/proc/self/maps').read()"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_symbols_stay_out_of_the_global_scope(run_python: Run) -> None:
    done = run_python(
        "import ctypes\nfrom horovod_tf.common import basics\n"
        "try:\n    ctypes.CDLL(None).horovod_init\nexcept AttributeError:\n    print('private')"
    )
    assert done.stdout == "private\n"


def test_missing_library_says_how_to_build_it(run_python: Run, tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("*.so", "*.cc", "*.h", "__pycache__")
    shutil.copytree(ROOT / "horovod_tf", tmp_path / "horovod_tf", ignore=ignore)
    done = run_python("import horovod_tf; print('fine'); import horovod_tf.common.basics", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == "fine\n"
    assert re.search(r"ImportError: .*libhorovod_common\.so has not been built: run `make lib`", done.stderr)


def test_library_that_does_not_fit_is_an_import_error(run_python: Run, tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("*.cc", "*.h", "__pycache__")
    shutil.copytree(ROOT / "horovod_tf", tmp_path / "horovod_tf", ignore=ignore)
    (tmp_path / "horovod_tf/_version.py").write_text('__version__ = "9.9.9"\n')
    done = run_python("import horovod_tf.common.basics", cwd=tmp_path)
    assert "ImportError" in done.stderr
    assert f"is version {basics.version()}, this package is 9.9.9" in done.stderr

    (tmp_path / "horovod_tf/common/libhorovod_common.so").write_bytes(b"no library at all")
    done = run_python("import horovod_tf.common.basics", cwd=tmp_path)
    assert "ImportError: the native library does not fit this package" in done.stderr


def test_version_is_the_packages() -> None:
    assert basics.version() == horovod_tf.__version__


@pytest.mark.parametrize("query", QUERIES)
def test_query_before_init_says_to_call_init(query: object) -> None:
    assert callable(query)
    with pytest.raises(ValueError, match=re.escape("Horovod has not been initialized; use hvd.init().")):
        query()


def test_answers_at_size_one() -> None:
    basics.init()
    assert basics.is_initialized() is True
    assert [query() for query in QUERIES[:6]] == [0, 1, 0, 1, 0, 1]
    assert basics.is_homogeneous() is True
    # Nobody uses MPI here, so nobody may call it.
    assert basics.mpi_threads_supported() is False


def test_init_and_shutdown_repeat_harmlessly() -> None:
    assert basics.is_initialized() is False
    for _ in range(3):
        basics.init()
        basics.init()
        assert basics.size() == 1
        basics.shutdown()
        basics.shutdown()
        assert basics.is_initialized() is False
        with pytest.raises(ValueError, match="not been initialized"):
            basics.rank()


def test_init_from_many_threads_at_once_starts_one() -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            basics.init()
            assert basics.rank() == 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert errors == []
    assert basics.is_initialized()


def test_environment_page_is_the_one_in_the_documents() -> None:
    page = ROOT / "docs/environment.md"
    assert page.read_text() == basics.environment_markdown(), "run `make docs`"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HOROVOD_FUSION_THRESHOLD", "64MB"),
        ("HOROVOD_FUSION_THRESHOLD", "99999999999999999999"),
        ("HOROVOD_CYCLE_TIME", "soon"),
        ("HOROVOD_STALL_CHECK_DISABLE", "perhaps"),
    ],
)
def test_value_that_does_not_parse_is_a_value_error_with_name_and_value(
    run_python: Run, variable: str, value: str
) -> None:
    done = run_python("from horovod_tf.common import basics; basics.init()", **{variable: value})
    assert done.returncode == 1
    last = done.stderr.partition("ValueError: ")[2]
    assert variable in last
    assert value in last


def test_variable_of_ours_that_does_not_exist_is_a_value_error(run_python: Run) -> None:
    done = run_python("from horovod_tf.common import basics; basics.init()", HOROVOD_TF_NO_SUCH_VARIABLE="1")
    assert done.returncode == 1
    assert "HOROVOD_TF_NO_SUCH_VARIABLE" in done.stderr.partition("ValueError: ")[2]


def test_init_works_after_the_environment_has_been_mended(run_python: Run) -> None:
    done = run_python(
        "import os\nfrom horovod_tf.common import basics\n"
        "try:\n    basics.init()\nexcept ValueError as error:\n    assert 'HOROVOD_CYCLE_TIME' in str(error)\n"
        "assert not basics.is_initialized()\n"
        "os.environ['HOROVOD_CYCLE_TIME'] = '1.5'\nbasics.init()\nprint(basics.size())",
        HOROVOD_CYCLE_TIME="x",
        OMPI_COMM_WORLD_SIZE="1",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.parametrize(
    ("variable", "family", "leaf"),
    [
        ("OMPI_COMM_WORLD_SIZE", "Open MPI", "libhorovod_mpi_openmpi.so"),
        ("PMI_SIZE", "MPICH", "libhorovod_mpi_mpich.so"),
    ],
)
def test_launcher_whose_mpi_was_not_built_for_is_an_error_with_the_command(
    run_python: Run, tmp_path: Path, variable: str, family: str, leaf: str
) -> None:
    ignore = shutil.ignore_patterns("libhorovod_mpi_*.so", "*.cc", "*.h", "__pycache__")
    shutil.copytree(ROOT / "horovod_tf", tmp_path / "horovod_tf", ignore=ignore)
    done = run_python("from horovod_tf.common import basics; basics.init()", cwd=tmp_path, **{variable: "2"})
    assert done.returncode == 1
    (text,) = [line for line in done.stderr.splitlines() if line.startswith("ValueError: ")]
    for part in (f"{variable} says that this is one of 2 processes", leaf, family, "make mpi MPICXX="):
        assert part in text


def test_library_for_an_mpi_that_does_not_fit_is_an_error(run_python: Run, tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("libhorovod_mpi_*.so", "*.cc", "*.h", "__pycache__")
    shutil.copytree(ROOT / "horovod_tf", tmp_path / "horovod_tf", ignore=ignore)
    # Any other library: it has not the function.
    shutil.copy(basics.LIBRARY_PATH, tmp_path / "horovod_tf/common/libhorovod_mpi_openmpi.so")
    done = run_python("from horovod_tf.common import basics; basics.init()", cwd=tmp_path, OMPI_COMM_WORLD_SIZE="2")
    assert done.returncode == 1
    assert "does not fit libhorovod_common.so" in done.stderr


def test_launcher_of_another_kind_is_an_error(run_python: Run) -> None:
    done = run_python("from horovod_tf.common import basics; basics.init()", HOROVOD_SIZE="2")
    assert done.returncode == 1
    assert "HOROVOD_SIZE says that this is one of 2 processes" in done.stderr.partition("ValueError: ")[2]


def test_process_that_nobody_has_launched_is_told_once_that_it_is_alone(run_python: Run) -> None:
    done = run_python(
        "from horovod_tf.common import basics; basics.init(); basics.shutdown(); basics.init(); print(basics.size())"
    )
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.count("warning: this is a job of one process") == 1


def test_launcher_of_one_is_size_one(run_python: Run) -> None:
    done = run_python(
        "from horovod_tf.common import basics; basics.init(); print(basics.size())", OMPI_COMM_WORLD_SIZE="1"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.parametrize(
    ("ending", "status", "error"),
    [
        ("", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("basics.shutdown()", 0, ""),
        ("basics.shutdown(); basics.init()", 0, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import os; os._exit(4)", 4, ""),
        ("import threading; threading.Thread(target=basics.init).start()", 0, ""),
    ],
)
def test_exit_without_shutdown_is_clean(run_python: Run, ending: str, status: int, error: str) -> None:
    done = run_python(f"from horovod_tf.common import basics; basics.init(); {ending}", OMPI_COMM_WORLD_SIZE="1")
    assert done.returncode == status
    assert (error in done.stderr) if error else done.stderr == ""


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("", "its program has ended, by itself or by sys.exit; has it had fewer steps"),
        ("sys.exit(3)", "its program ended with sys.exit(3)"),
        ("sys.exit('no data')", "its program ended with sys.exit('no data')"),
        ("sys.exit(0)", "its program has ended, by itself or by sys.exit; has it had fewer steps"),
        (
            "threading.Thread(target=lambda: 1 / 0, name='trainer').start()",
            "its program has ended, and before it its thread trainer with ZeroDivisionError: division by zero",
        ),
        ("try: sys.exit(3)\nexcept SystemExit: pass", "its program has ended, by itself"),
        ("threading.Thread(target=sys.exit, args=(3,)).start()", "its program has ended, by itself"),
        ("1 / 0", "its program ended with ZeroDivisionError: division by zero"),
        ("sys.excepthook = lambda *_: None; 1 / 0", "its program ended with ZeroDivisionError: division by zero"),
        ("raise ValueError('x' * 5000)", "its program ended with ValueError: " + "x" * 960),
        ("try: 1 / 0\nexcept ZeroDivisionError: pass", "its program has ended, by itself"),
    ],
)
def test_exit_says_why_the_program_ends(run_python: Run, ending: str, reason: str) -> None:
    done = run_python(
        "import atexit, sys, threading\nfrom horovod_tf.common import basics, ending\nbasics.init()\n"
        "atexit.register(lambda: print(ending.reason()))\n" + ending
    )
    assert done.stdout.startswith(reason)
    assert len(done.stdout) < 1100
    if "sys.exit" in ending:
        assert "Traceback" not in done.stderr


def test_exit_shuts_down_after_the_programs_own_exit_functions(run_python: Run) -> None:
    done = run_python(
        "import atexit\nfrom horovod_tf.common import basics\n"
        "atexit.register(lambda: print('before', basics.is_initialized()))\n"
        "basics.init()\nbasics.init()\n"
        "atexit.register(lambda: print('after', basics.is_initialized()))\n"
    )
    assert done.stdout == "after True\nbefore False\n"


def test_child_forked_after_init_is_told_so_and_exits(run_python: Run) -> None:
    done = run_python(
        "import os, signal, sys\nfrom horovod_tf.common import basics\n"
        "basics.init()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(20)\n"
        "    assert not basics.is_initialized()\n"
        "    for call in (basics.init, basics.rank):\n"
        "        try:\n            call()\n"
        "        except ValueError as error:\n            assert 'forked after hvd.init()' in str(error)\n"
        "        else:\n            os._exit(9)\n"
        "    basics.shutdown()\n"
        "    sys.exit(7)\n"  # with what is registered with atexit
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "print(basics.rank())",
        OMPI_COMM_WORLD_SIZE="1",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
