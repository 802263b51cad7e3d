# Builds, tests and checks everything. `make help` lists what there is.
#
#   VARIANT=release|asan|ubsan|tsan|coverage   flavour of the native build, each in build/VARIANT
#   STRICT=1                                   warnings are errors (our CI; not for users)
#   MPICXX=mpicxx                              compiler wrapper of the MPI to build for
#   PYTHON=python3                             interpreter for everything in Python
#   CXX, CXXFLAGS, LDFLAGS                     compiler and flags of yours, added to ours
#   TEST_LIMIT=300                             seconds a test program may take
#   GTEST_FLAGS=--gtest_filter=...             for the native tests
#   PYTEST_FLAGS='-k name'                     for the Python tests

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

# ---- the native build, listed once -------------------------------------------------------------
CORE_FOLDERS := base protocol transport collectives runtime
CORE_SOURCES := $(sort $(wildcard horovod_tf/common/*.cc $(CORE_FOLDERS:%=horovod_tf/common/%/*.cc)))
TEST_SOURCES := $(sort $(wildcard test/cpp/*.cc test/cpp/support/*.cc test/cpp/contract/*.cc))
BENCH_SOURCES := $(sort $(wildcard benchmarks/*.cc))
BENCH_SUPPORT := $(sort $(wildcard benchmarks/support/*.cc))
CORE_OBJECTS := $(CORE_SOURCES:%.cc=$(BUILD)/%.o)
TEST_OBJECTS := $(TEST_SOURCES:%.cc=$(BUILD)/%.o)
BENCH_OBJECTS := $(BENCH_SOURCES:%.cc=$(BUILD)/%.o) $(BENCH_SUPPORT:%.cc=$(BUILD)/%.o)
BENCHES := $(BENCH_SOURCES:benchmarks/%.cc=$(BUILD)/%)
LIBRARY := $(BUILD)/libhorovod_common.so
PACKAGED_LIBRARY := horovod_tf/common/libhorovod_common.so
TESTS := $(BUILD)/core_tests
DEPENDENCIES := $(patsubst %.o,%.d,$(CORE_OBJECTS) $(TEST_OBJECTS) $(BENCH_OBJECTS))

# The core sees the standard library and itself. The boundary folder comes before any path of the
# user's and turns an include of a foreign header into an error, even where that header is installed
# system-wide; CHECK_BOUNDARY then looks at what was really read: a header that is neither ours nor the standard
# library's nor the system's is foreign, whoever made it (tools/check_includes.awk).
unexport CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
CORE_INCLUDES := -Itools/boundary -I.
OWN_HEADERS := ^horovod_tf/common/
$(BUILD)/test/%.o: OWN_HEADERS := ^(horovod_tf/common|test)/|/gtest/
$(BUILD)/benchmarks/%.o: OWN_HEADERS := ^(horovod_tf/common|benchmarks)/
CHECK_BOUNDARY = foreign=$$(awk -f tools/check_includes.awk -v own='$(OWN_HEADERS)' $(BUILD)/system.folders $(@:.o=.d)) || { \
    rm -f $@; echo "$<: the core must not include $$foreign: only the standard library, POSIX and itself" \
    '(docs/architecture.md, layers)' >&2; exit 1; }

LANGUAGE := -std=c++17 -Wall -Wextra
WARNINGS_1 := -Wconversion -Wshadow -Werror
FLAGS_release := -O3
FLAGS_asan := -O1 -fsanitize=address,leak -fno-omit-frame-pointer
FLAGS_ubsan := -O0 -fsanitize=undefined -fno-sanitize-recover=all
FLAGS_tsan := -O1 -fsanitize=thread
# Threads count the same lines: without atomic counters gcov reports negative numbers.
FLAGS_coverage := -O0 --coverage -fprofile-update=atomic
ifeq ($(FLAGS_$(VARIANT)),)
$(error VARIANT=$(VARIANT) is none of release, asan, ubsan, tsan, coverage)
endif
# -g1 has what stacks need; CXXFLAGS=-g has the rest. Tests are compiled often and run for seconds: a compiler that
# optimises them costs more than it saves.
TEST_FLAGS := -O0
# What is exported is tools/exports.map's; that somebody replaces our functions is nothing to prepare for.
COMPILE_FLAGS := $(LANGUAGE) -g1 -fPIC -fno-semantic-interposition -fvisibility-inlines-hidden $(WARNINGS_$(STRICT)) $(FLAGS_$(VARIANT)) \
    $(CORE_INCLUDES) $(CXXFLAGS)
LINK_FLAGS := $(filter -fsanitize% --coverage,$(FLAGS_$(VARIANT))) -pthread -ldl $(LDFLAGS)
# A sanitizer's runtime is found in the program, so only a plain library can be asked to be complete.
LIBRARY_FLAGS := -shared -Wl,--version-script=tools/exports.map \
    $(if $(filter -fsanitize%,$(LINK_FLAGS)),,-Wl,-z,defs)

.PHONY: help lib test test-cpp test-boundary test-python asan ubsan tsan coverage lint lint-cpp \
    lint-python format docs bench bench-control-plane-callgrind print-core-compile ops mpi test-mpi mpi-leaf mpi-tests test-tensorflow clean FORCE
.DELETE_ON_ERROR:
help:
	@echo 'make lib              build the core library'
	@echo "make ops              build TensorFlow's operations for the TensorFlow of PYTHON"
	@echo 'make mpi              build the library for the MPI of MPICXX'
	@echo 'make test-mpi         the native tests under that MPI, on 1 to 4 ranks'
	@echo 'make test-tensorflow  installs TensorFlow and Open MPI into .venv-tensorflow, tests at 1, 2 and 3 ranks'
	@echo 'make test             everything that runs here: native and Python'
	@echo 'make test-cpp         the native tests (g++ and gtest are enough)'
	@echo 'make test-python      the Python tests that need no launcher'
	@echo 'make test-boundary    that the core includes only itself, the standard library and POSIX'
	@echo 'make asan|ubsan|tsan  the native tests under a sanitizer'
	@echo 'make coverage         line coverage of the core; fails under 90 %'
	@echo 'make lint             clang-format, clang thread-safety, clang-tidy, ruff, mypy'
	@echo 'make format           reformat C++ and Python'
	@echo 'make docs             regenerate docs/environment.md'
	@echo 'make bench            benchmarks of the core'
	@echo 'make bench-control-plane-callgrind   instructions of the control plane per tensor'
	@echo 'make clean            remove build/ and the built library (.venv stays)'
	@echo
	@echo 'Variables (VARIANT, STRICT, ...) are explained at the top of the Makefile.'

lib: $(PACKAGED_LIBRARY)

# Replaced in one step: a running process keeps the file that it has mapped.
$(PACKAGED_LIBRARY): $(LIBRARY)
	@cmp -s $< $@ || { cp $< $@.new && mv $@.new $@; }
	@touch $@

$(LIBRARY): $(CORE_OBJECTS) tools/exports.map $(BUILD)/link.flags
	$(CXX) $(LIBRARY_FLAGS) -o $@ $(CORE_OBJECTS) $(LINK_FLAGS)

# Whatever changes what a command does is a file that its outputs depend on; it is rewritten only when its
# text changes. So another compiler, flag or list of sources rebuilds exactly what it must.
KEEP_IF_SAME = @mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$1)' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$1)' >$@
$(BUILD)/compile.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(COMPILE_FLAGS) for tests: $(TEST_FLAGS))
$(BUILD)/link.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(LIBRARY_FLAGS) $(LINK_FLAGS) $(CORE_OBJECTS))
$(BUILD)/test.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(LINK_FLAGS) $(CORE_OBJECTS) $(TEST_OBJECTS))

COMPILE_COMMAND = $(CXX) $(COMPILE_FLAGS) $(EXTRA_FLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@
$(BUILD)/horovod_tf/%.o: horovod_tf/%.cc $(BUILD)/compile.flags $(BUILD)/system.folders
	@mkdir -p $(@D)
	$(COMPILE_COMMAND)
	@$(CHECK_BOUNDARY)

$(BUILD)/test/%.o: EXTRA_FLAGS := $(TEST_FLAGS)
$(BUILD)/test/%.o: test/%.cc $(BUILD)/compile.flags $(BUILD)/system.folders | $(BUILD)/gtest.found
	@mkdir -p $(@D)
	$(COMPILE_COMMAND)
	@$(CHECK_BOUNDARY)

$(BUILD)/benchmarks/%.o: benchmarks/%.cc $(BUILD)/compile.flags $(BUILD)/system.folders
	@mkdir -p $(@D)
	$(COMPILE_COMMAND)
	@$(CHECK_BOUNDARY)

# Where the compiler looks by itself, without what a user adds.
$(BUILD)/system.folders: tools/check_includes.awk $(BUILD)/compile.flags
	@LC_ALL=C $(CXX) $(filter --sysroot% --gcc-toolchain% -stdlib% -m%,$(CXXFLAGS)) -E -v -x c++ /dev/null >$@ 2>&1

# How a core file is compiled, for tests and editors.
print-core-compile:
	@echo '$(CXX) $(COMPILE_FLAGS)'

# ---- TensorFlow's operations: the only code that sees its headers ------------------------------
OPS_SOURCES := $(sort $(wildcard horovod_tf/ops/*.cc))
OPS_OBJECTS := $(OPS_SOURCES:%.cc=$(BUILD)/%.o)
OPS_LIBRARY := $(BUILD)/libhorovod_tf_ops.so
PACKAGED_OPS := horovod_tf/ops/libhorovod_tf_ops.so
OPS_BUILD_INFO := horovod_tf/ops/_build_info.py
TENSORFLOW := $(BUILD)/tensorflow
ASK_FLAGS = $(PYTHON) -m build_support.flags
# NDEBUG: as TensorFlow itself was built; its headers have checks that call what it does not export.
OPS_FLAGS := $(LANGUAGE) -g -fPIC -fvisibility=hidden -DNDEBUG $(WARNINGS_$(STRICT)) $(FLAGS_$(VARIANT)) \
    -I. @$(TENSORFLOW).compile $(CXXFLAGS)
OPS_LINK_FLAGS := -shared -Wl,-rpath,'$$ORIGIN/../common' -L$(BUILD) -lhorovod_common \
    @$(TENSORFLOW).link $(LINK_FLAGS)

# The library first: what says for which TensorFlow it is must never be newer than it.
ops: lib $(OPS_LIBRARY)
	@cmp -s $(OPS_LIBRARY) $(PACKAGED_OPS) || { cp $(OPS_LIBRARY) $(PACKAGED_OPS).new && mv $(PACKAGED_OPS).new $(PACKAGED_OPS); }
	@cmp -s $(TENSORFLOW).build-info $(OPS_BUILD_INFO) || cp $(TENSORFLOW).build-info $(OPS_BUILD_INFO)

# Importing TensorFlow takes seconds, so it is asked only when it is another one than last time.
$(TENSORFLOW).which: FORCE
	$(call KEEP_IF_SAME,$(shell $(ASK_FLAGS) tensorflow which))
$(TENSORFLOW).compile $(TENSORFLOW).link $(TENSORFLOW).build-info: $(TENSORFLOW).%: $(TENSORFLOW).which build_support/flags.py
	$(ASK_FLAGS) tensorflow $* >$@
$(BUILD)/ops.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(OPS_FLAGS) $(OPS_LINK_FLAGS) $(OPS_OBJECTS))

$(BUILD)/horovod_tf/ops/%.o: horovod_tf/ops/%.cc $(BUILD)/ops.flags $(TENSORFLOW).compile
	@mkdir -p $(@D)
	$(CXX) $(OPS_FLAGS) -MMD -MP -c $< -o $@

$(OPS_LIBRARY): $(OPS_OBJECTS) $(LIBRARY) $(TENSORFLOW).link $(TENSORFLOW).build-info
	$(CXX) -o $@ $(OPS_OBJECTS) $(OPS_LINK_FLAGS)

-include $(OPS_OBJECTS:.o=.d)

# ---- MPI: one library for each family, and the only code that sees mpi.h -----------------------
MPICXX ?= mpicxx
MPIRUN ?= $(patsubst %mpicxx,%mpirun,$(MPICXX))
MPI_SOURCES := $(sort $(wildcard horovod_tf/common/mpi/*.cc))
MPI_TEST_SOURCES := $(sort $(wildcard test/cpp_mp/*.cc))
# Only the wrapper knows the MPI: its headers say which one it is. `make mpi` asks and calls itself.
MPI_FAMILY ?= unknown
MPI_BUILD := $(BUILD)/$(MPI_FAMILY)
MPI_OBJECTS := $(MPI_SOURCES:%.cc=$(MPI_BUILD)/%.o)
MPI_TEST_OBJECTS := $(MPI_TEST_SOURCES:%.cc=$(MPI_BUILD)/%.o)
MPI_LIBRARY := $(MPI_BUILD)/libhorovod_mpi_$(MPI_FAMILY).so
MPI_TESTS := $(MPI_BUILD)/mpi_tests
PACKAGED_MPI := horovod_tf/common/libhorovod_mpi_$(MPI_FAMILY).so
# Without the C++ bindings that MPI has given up. The system's mark keeps our warnings off its headers.
MPI_SYSTEM = $(patsubst -I%,-isystem %,$(filter -I%,$(shell $(MPICXX) -show)))
MPI_FLAGS = $(LANGUAGE) -g -fPIC -fvisibility=hidden -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX \
    $(WARNINGS_$(STRICT)) $(FLAGS_$(VARIANT)) -I. $(MPI_SYSTEM) $(CXXFLAGS)
# The MPI of the environment that the package was installed into, and then the one it was built with.
MPI_LINK_FLAGS := -shared -Wl,-rpath,'$$ORIGIN' -Wl,-rpath,'$$ORIGIN/../../../..' -L$(BUILD) -lhorovod_common $(LINK_FLAGS)
ASK_FAMILY = $(MPICXX) -x c++ -E -dM -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -include mpi.h /dev/null | \
    sed -n 's/^\#define OPEN_MPI .*/openmpi/p; s/^\#define MPICH_VERSION .*/mpich/p'
WITH_FAMILY = family=$$($(ASK_FAMILY)) && [ -n "$$family" ] || { \
    echo 'No Open MPI or MPICH here: `$(MPICXX)` must be its compiler wrapper (MPICXX=...)' >&2; exit 1; }; \
    $(MAKE) --no-print-directory MPI_FAMILY=$$family

mpi: lib
	+@$(WITH_FAMILY) mpi-leaf
mpi-leaf: $(MPI_LIBRARY)
	@cmp -s $(MPI_LIBRARY) $(PACKAGED_MPI) || { cp $(MPI_LIBRARY) $(PACKAGED_MPI).new && mv $(PACKAGED_MPI).new $(PACKAGED_MPI); }

MPI_RANKS ?= 1 2 3 4
MPI_TEST_LIMIT ?= 240
# More ranks than cores, and as root in containers: Open MPI wants to be told.
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
MPIRUN_FLAGS ?= $(if $(filter openmpi,$(MPI_FAMILY)),--oversubscribe --bind-to none)
test-mpi: mpi
	+@$(WITH_FAMILY) mpi-tests
mpi-tests: $(MPI_TESTS)
	@set -e; for ranks in $(MPI_RANKS); do echo "== $$ranks ranks"; \
	    tools/with_deadline $(MPI_TEST_LIMIT) $(MPIRUN) -np $$ranks $(MPIRUN_FLAGS) $(MPI_TESTS) --gtest_brief=1 $(GTEST_FLAGS); done

$(MPI_BUILD)/mpi.flags: FORCE
	$(call KEEP_IF_SAME,$(MPICXX) $(MPI_FLAGS) $(MPI_LINK_FLAGS) $(MPI_OBJECTS) $(MPI_TEST_OBJECTS) $(shell $(MPICXX) -show))
$(MPI_BUILD)/%.o: %.cc $(MPI_BUILD)/mpi.flags
	@mkdir -p $(@D)
	$(MPICXX) $(MPI_FLAGS) -MMD -MP -c $< -o $@
$(MPI_LIBRARY): $(MPI_OBJECTS) $(LIBRARY) $(MPI_BUILD)/mpi.flags
	$(MPICXX) -o $@ $(MPI_OBJECTS) $(MPI_LINK_FLAGS)
# Of objects, like the core's own tests.
$(MPI_TESTS): $(MPI_TEST_OBJECTS) $(MPI_OBJECTS) $(CORE_OBJECTS) $(MPI_BUILD)/mpi.flags
	$(MPICXX) -o $@ $(filter %.o,$^) $(LINK_FLAGS) -lgtest

-include $(MPI_OBJECTS:.o=.d) $(MPI_TEST_OBJECTS:.o=.d)

# ---- tests -------------------------------------------------------------------------------------
$(BUILD)/gtest.found:
	@mkdir -p $(@D)
	@echo '#include <gtest/gtest.h>' | $(CXX) -std=c++17 -E -x c++ - >$@ 2>/dev/null || { rm -f $@; \
	    echo 'The native tests need gtest, which is not installed: apt-get install libgtest-dev' >&2; exit 1; }

$(TESTS): $(TEST_OBJECTS) $(CORE_OBJECTS) $(BUILD)/test.flags
	$(CXX) -o $@ $(TEST_OBJECTS) $(CORE_OBJECTS) $(LINK_FLAGS) -lgtest -lgtest_main

test: test-cpp test-python

# A hang is a failure: the hard limit prints stacks first.
TEST_LIMIT ?= 300
test-cpp: $(TESTS)
	tools/with_deadline $(TEST_LIMIT) $(TESTS) --gtest_brief=1 $(GTEST_FLAGS)

# The first error of a sanitizer ends the run.
export ASAN_OPTIONS ?= detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS ?= print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1
asan ubsan tsan:
	$(MAKE) VARIANT=$@ test-cpp

# Python tools live in a folder of ours and never come from the machine.
VENV := .venv
VENV_STAMP := $(VENV)/.stamp
IN_VENV := $(VENV)/bin/python -m
$(VENV_STAMP): tools/requirements-dev.txt
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo 'The Python checks need venv, which is not installed: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(IN_VENV) pip install --quiet --requirement $<
	@touch $@

PYTEST_LIMIT ?= 600
test-python: lib $(VENV_STAMP)
	tools/with_deadline $(PYTEST_LIMIT) $(IN_VENV) pytest $(PYTEST_FLAGS) test/single

test-boundary: $(VENV_STAMP)
	tools/with_deadline $(PYTEST_LIMIT) $(IN_VENV) pytest $(PYTEST_FLAGS) test/single/test_boundary.py

# ---- TensorFlow under a launcher ------------------------------------------------------------------
# TensorFlow and an MPI in a folder of their own; tests run as `mpirun -np N pytest test/test_tensorflow.py`.
TENSORFLOW_REQUIREMENTS ?= tools/requirements-tensorflow.txt
TENSORFLOW_VENV ?= .venv-tensorflow
TENSORFLOW_RANKS ?= 1 2 3
TENSORFLOW_LIMIT ?= 600
$(TENSORFLOW_VENV)/.stamp: $(TENSORFLOW_REQUIREMENTS)
	$(PYTHON) -m venv --clear $(TENSORFLOW_VENV)
	$(TENSORFLOW_VENV)/bin/python -m pip install --quiet --requirement $<
	@touch $@

test-tensorflow: $(TENSORFLOW_VENV)/.stamp
	$(MAKE) ops mpi PYTHON=$(TENSORFLOW_VENV)/bin/python MPICXX=$(abspath $(TENSORFLOW_VENV))/bin/mpicxx
	for ranks in $(TENSORFLOW_RANKS); do \
	    tools/with_deadline $(TENSORFLOW_LIMIT) $(TENSORFLOW_VENV)/bin/mpirun -np $$ranks --oversubscribe --bind-to none \
	        $(TENSORFLOW_VENV)/bin/python -m pytest -q $(PYTEST_FLAGS) test/test_tensorflow.py || exit 1; \
	done
	tools/with_deadline $(TENSORFLOW_LIMIT) $(TENSORFLOW_VENV)/bin/python -m pytest -q $(PYTEST_FLAGS) test/test_tensorflow_library.py

# Leaves (mpi/, cuda/) are left out: what they do shows only on the real thing.
COVERAGE_MINIMUM ?= 90
coverage:
	$(MAKE) VARIANT=coverage coverage-report
.PHONY: coverage-report
coverage-report: $(TESTS)
	@find $(BUILD) -name '*.gcda' -delete
	tools/with_deadline $(TEST_LIMIT) $(TESTS) --gtest_brief=1 $(GTEST_FLAGS)
	$(GCOVR) --root . --object-directory $(BUILD) --filter 'horovod_tf/common/' \
	    --exclude 'horovod_tf/common/(mpi|cuda)/' --exclude-unreachable-branches --print-summary \
	    --fail-under-line $(COVERAGE_MINIMUM) $(BUILD)

# ---- lint --------------------------------------------------------------------------------------
CXX_FILES := $(sort $(wildcard $(foreach folder,horovod_tf/common $(CORE_FOLDERS:%=horovod_tf/common/%) \
    horovod_tf/common/mpi horovod_tf/ops test/cpp_mp test/cpp \
    test/cpp/support test/cpp/contract benchmarks benchmarks/support,$(folder)/*.h $(folder)/*.cc $(folder)/*.inc)))
LINT := build/lint
TIDY_STAMPS := $(CORE_SOURCES:%.cc=$(LINT)/%.tidy)
SAFETY_STAMPS := $(patsubst %.cc,$(LINT)/%.safety,$(CORE_SOURCES) $(TEST_SOURCES) $(BENCH_SOURCES) $(BENCH_SUPPORT))
PYTHON_FILES := horovod_tf build_support setup.py test tools/with_deadline
LINT_JOBS ?= 2
LINT_FLAGS := $(LANGUAGE) $(WARNINGS_1) -Wthread-safety $(CORE_INCLUDES)

# exit() destroys what has a destructor while the background thread still works: no object of the core that lives as
# long as the process may have one.
$(CORE_SOURCES:%.cc=$(LINT)/%.safety): LINT_FLAGS += -Wexit-time-destructors

# All findings at once, not the first file's only.
lint: $(VENV_STAMP)
	+$(MAKE) --no-print-directory --keep-going -j$(LINT_JOBS) lint-cpp lint-python

lint-cpp: $(LINT)/format $(SAFETY_STAMPS) $(TIDY_STAMPS)

$(LINT)/format: $(CXX_FILES) .clang-format
	@mkdir -p $(@D)
	$(CLANG_FORMAT) --dry-run --Werror $(CXX_FILES)
	@touch $@

# Whether clang agrees: its warnings, and its proof of who holds which lock.
$(LINT)/%.safety: %.cc
	@mkdir -p $(@D)
	$(CLANGXX) -fsyntax-only $(LINT_FLAGS) -MMD -MP -MF $(LINT)/$*.d -MT $@ -MT $(LINT)/$*.tidy $<
	@touch $@

$(LINT)/%.tidy: %.cc $(LINT)/%.safety .clang-tidy
	$(CLANG_TIDY) --quiet $< -- $(LINT_FLAGS) -Wno-error
	@touch $@

lint-python: $(VENV_STAMP)
	$(IN_VENV) ruff check $(PYTHON_FILES)
	$(IN_VENV) ruff format --check $(PYTHON_FILES)
	$(IN_VENV) mypy

format: $(VENV_STAMP)
	$(CLANG_FORMAT) -i $(CXX_FILES)
	$(IN_VENV) ruff check --fix $(PYTHON_FILES)
	$(IN_VENV) ruff format $(PYTHON_FILES)

# ---- documents and benchmarks ------------------------------------------------------------------
docs: lib
	$(PYTHON) -c 'from horovod_tf.common import basics; print(basics.environment_markdown(), end="")' \
	    >docs/environment.md.new
	mv docs/environment.md.new docs/environment.md

$(BENCHES): $(BUILD)/%: $(BUILD)/benchmarks/%.o $(BENCH_SUPPORT:%.cc=$(BUILD)/%.o) $(CORE_OBJECTS) $(BUILD)/link.flags
	$(CXX) -o $@ $(filter %.o,$^) $(LINK_FLAGS)

bench: $(BENCHES)
	@set -e; for bench in $(BENCHES); do echo "== $$bench"; $$bench; done

# Instructions do not depend on what else the machine does. The difference of two runs leaves out the first step.
CALLGRIND_CASE ?= --ranks 64 --tensors 1000
bench-control-plane-callgrind: $(BUILD)/control_plane
	@set -e; count() { $(VALGRIND) --tool=callgrind --callgrind-out-file=$(BUILD)/callgrind.out $< $(CALLGRIND_CASE) \
	    --steps $$1 2>&1 | sed -n 's/.*Collected : *\([0-9][0-9]*\).*/\1/p'; }; \
	tensors=$$(echo '$(CALLGRIND_CASE)' | sed 's/.*--tensors \([0-9]*\).*/\1/'); \
	few=$$(count 2); many=$$(count 12); \
	echo "control plane, $(CALLGRIND_CASE), steady step: $$(( (many - few) / 10 / tensors )) instructions per tensor" \
	    "(all ranks' messages on rank 0, and one rank's own work)"

clean:
	rm -rf build $(PACKAGED_LIBRARY) horovod_tf/common/libhorovod_mpi_*.so $(PACKAGED_OPS) $(OPS_BUILD_INFO)

-include $(DEPENDENCIES) $(SAFETY_STAMPS:.safety=.d)
