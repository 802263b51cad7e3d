# Builds, tests and checks everything. `make help` lists what there is.
#
#   VARIANT=release|asan|ubsan|tsan|coverage   flavour of the native build, each in build/VARIANT
#   STRICT=1                                   warnings are errors (our CI; not for users)
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
COMPILE_FLAGS := $(LANGUAGE) -g1 -fPIC -fvisibility=hidden $(WARNINGS_$(STRICT)) $(FLAGS_$(VARIANT)) \
    $(CORE_INCLUDES) $(CXXFLAGS)
LINK_FLAGS := $(filter -fsanitize% --coverage,$(FLAGS_$(VARIANT))) -pthread $(LDFLAGS)
# A sanitizer's runtime is found in the program, so only a plain library can be asked to be complete.
LIBRARY_FLAGS := -shared -Wl,--version-script=tools/exports.map \
    $(if $(filter -fsanitize%,$(LINK_FLAGS)),,-Wl,-z,defs)

.PHONY: help lib test test-cpp test-boundary test-python asan ubsan tsan coverage lint lint-cpp \
    lint-python format docs bench bench-control-plane-callgrind print-core-compile clean FORCE
.DELETE_ON_ERROR:
help:
	@echo 'make lib              build the core library'
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
CXX_FILES := $(sort $(wildcard $(foreach folder,horovod_tf/common $(CORE_FOLDERS:%=horovod_tf/common/%) test/cpp \
    test/cpp/support test/cpp/contract benchmarks benchmarks/support,$(folder)/*.h $(folder)/*.cc $(folder)/*.inc)))
LINT := build/lint
TIDY_STAMPS := $(CORE_SOURCES:%.cc=$(LINT)/%.tidy)
SAFETY_STAMPS := $(patsubst %.cc,$(LINT)/%.safety,$(CORE_SOURCES) $(TEST_SOURCES) $(BENCH_SOURCES) $(BENCH_SUPPORT))
PYTHON_FILES := horovod_tf test tools/with_deadline
LINT_JOBS ?= 2
LINT_FLAGS := $(LANGUAGE) $(WARNINGS_1) -Wthread-safety $(CORE_INCLUDES)

# exit() destroys what has a destructor while the background thread still works: no object of the core that lives as
# long as the process may have one. (What the C API keeps for each thread ends with its thread, its only reader.)
$(CORE_SOURCES:%.cc=$(LINT)/%.safety): LINT_FLAGS += -Wexit-time-destructors
$(LINT)/horovod_tf/common/c_api.safety: LINT_FLAGS += -Wno-exit-time-destructors

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
	rm -rf build $(PACKAGED_LIBRARY)

-include $(DEPENDENCIES) $(SAFETY_STAMPS:.safety=.d)
