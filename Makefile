# Builds, tests and checks everything. `make help` lists what there is; the rules are in build_support/*.mk.
#
#   PYTHON=python3                             the interpreter that the environments are made of; for `make ops` alone,
#                                              the one whose TensorFlow is built for
#   MPICXX=.../mpicxx                          compiler wrapper of the MPI to build for, its launcher beside it;
#                                              else that of the environment
#   VENV=.venv                                 environment for demo and tests: made here, or one of yours, left as it is
#   CXX, CXXFLAGS, LDFLAGS                     compiler and flags of yours, added to ours
#   JOBS=2                                     as many commands at once, unless make -j says it; all processors
#   V=1                                        print commands as they are
#   STRICT=1                                   warnings are errors (our CI; not for users)
#   VARIANT=release|asan|tsan|coverage         flavour of the native build, each in build/VARIANT
#   DEMO_RANKS=2, DEMO_FLAGS='--steps 900'     processes of `make demo`, and options of examples/digits_graph.py
#   TENSORFLOW_RANKS='1 2 3'                   numbers of processes of the TensorFlow tests
#   TEST_LIMIT=300                             seconds a test program may take
#   RANDOM_FAULTS=50, SOAK_SECONDS=1800, FUZZ_SECONDS=200   how long these go on
#   GTEST_FLAGS=--gtest_filter=...             for the native tests
#   PYTEST_FLAGS='-k name'                     for the Python tests
#   PEER_PYTHON=/path/to/venv/bin/python       `make bench` and `make test-faults` look at that environment's horovod too
#   BENCH_FLAGS=--quick                        options of benchmarks/table.py

VARIANT ?= release
STRICT ?= 0
PYTHON ?= python3
ifeq ($(origin CXX),default)
CXX := g++
endif
CLANGXX ?= clang++
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy
GCOVR ?= gcovr
VALGRIND ?= valgrind
BUILD := build/$(VARIANT)

V ?= 0
SAY := $(if $(filter 1,$(V)),@:,@echo)
Q := $(if $(filter 1,$(V)),,@)

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# For a make inside of one that need not have been called with -j.
PARALLEL = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

.PHONY: help FORCE
.DELETE_ON_ERROR:
help:
	@echo 'make demo             trains a small net on $(DEMO_RANKS) processes; installs and builds what is missing'
	@echo 'make test             all tests that run here; installs and builds what is missing'
	@echo
	@echo 'make test-cpp         the native tests (g++ and gtest are enough)'
	@echo 'make test-python      the Python tests that need no launcher'
	@echo 'make test-tensorflow  the tests with TensorFlow, under mpirun and launching jobs themselves'
	@echo 'make test-mpi         the native tests under the MPI of MPICXX, on 1 to 4 ranks'
	@echo 'make test-matrix      the TensorFlow tests with every TensorFlow and MPI; prints a table'
	@echo 'make test-faults      jobs in which something goes wrong; prints a table, takes half an hour'
	@echo 'make test-random-faults  jobs that are hit at random moments; a quarter of an hour'
	@echo 'make soak             collectives with random sizes and delays for half an hour'
	@echo 'make fuzz             random bytes into messages, settings and the C interface; needs clang'
	@echo 'make test-boundary    that the core includes only itself, the standard library and POSIX'
	@echo 'make asan|tsan        the native tests under sanitizers: addresses, leaks and undefined behaviour; threads'
	@echo 'make coverage         line coverage of the core; fails under 90 %'
	@echo 'make lint             clang-format, clang thread-safety, clang-tidy, ruff, mypy'
	@echo
	@echo 'make lib              build the core library'
	@echo "make ops              build TensorFlow's operations for the TensorFlow of PYTHON"
	@echo 'make mpi              build the library for the MPI of MPICXX'
	@echo 'make environment      the environment in VENV'
	@echo 'make format           reformat C++ and Python'
	@echo 'make docs             regenerate docs/environment.md'
	@echo 'make bench            benchmarks of the core (alone: make bench-native), then a table of ratios'
	@echo 'make bench-control-plane-callgrind   instructions of the control plane per tensor'
	@echo 'make clean            remove build/ and the built libraries (environments stay)'
	@echo
	@echo 'Variables (PYTHON, MPICXX, VENV, ...) are explained at the top of the Makefile.'

include build_support/native.mk
include build_support/tensorflow.mk
include build_support/mpi.mk
include build_support/environment.mk
include build_support/test.mk
include build_support/lint.mk
include build_support/bench.mk
