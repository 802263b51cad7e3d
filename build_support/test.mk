# ---- tests -------------------------------------------------------------------------------------
$(BUILD)/gtest.found:
	@mkdir -p $(@D)
	@echo '#include <gtest/gtest.h>' | $(CXX) -std=c++17 -E -x c++ - >$@ 2>/dev/null || { rm -f $@; \
	    echo 'The native tests need gtest, which is not installed: apt-get install libgtest-dev' >&2; exit 1; }

$(TESTS): $(TEST_OBJECTS) $(CORE_OBJECTS) $(BUILD)/test.flags
	$(SAY) 'link $@'
	$(Q)$(CXX) -o $@ $(TEST_OBJECTS) $(CORE_OBJECTS) $(LINK_FLAGS) -lgtest -lgtest_main

# Everything that runs here. Who has no gtest has a library that works all the same.
.PHONY: test test-cpp asan tsan test-python test-boundary
test: environment
	+@$(IN_ENVIRONMENT) ops mpi
	+@$(MAKE) --no-print-directory test-cpp-if-possible
	+@$(MAKE) --no-print-directory test-python
	+@$(IN_ENVIRONMENT) tensorflow-tests

# Makes a target whose tests need gtest, or says that it does not.
IF_GTEST = if $(MAKE) --no-print-directory $(BUILD)/gtest.found 2>/dev/null; then \
        $(MAKE) --no-print-directory $(PARALLEL) $1; \
    else \
        echo 'The native tests are left out: they need gtest (apt-get install libgtest-dev)'; \
    fi
.PHONY: test-cpp-if-possible test-mpi-if-possible
test-cpp-if-possible test-mpi-if-possible: %-if-possible:
	+@$(call IF_GTEST,$*)

# A hang is a failure: the hard limit prints stacks first.
TEST_LIMIT ?= 300
test-cpp: $(TESTS)
	tools/with_deadline $(TEST_LIMIT) $(TESTS) --gtest_brief=1 $(GTEST_FLAGS)

# The first error of a sanitizer ends the run.
export ASAN_OPTIONS ?= detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS ?= print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1
asan tsan:
	+$(MAKE) $(PARALLEL) VARIANT=$@ test-cpp

# Random bytes into the doors that foreign data comes through, for so many seconds each: libFuzzer, which is clang's.
FUZZ_SECONDS ?= 200
FUZZERS := $(patsubst test/fuzz/%_fuzz.cc,%,$(wildcard test/fuzz/*_fuzz.cc))
.PHONY: fuzz $(FUZZERS:%=fuzz-%)
fuzz:
	+$(MAKE) $(PARALLEL) VARIANT=fuzz CXX=$(CLANGXX) $(FUZZERS:%=fuzz-%)

$(FUZZERS:%=fuzz-%): fuzz-%: $(BUILD)/%_fuzz
	@mkdir -p $(BUILD)/corpus/$*
	tools/with_deadline $$(($(FUZZ_SECONDS) + 120)) $< -max_total_time=$(FUZZ_SECONDS) -timeout=30 -print_final_stats=1 \
	    -verbosity=0 -artifact_prefix=$(BUILD)/ $(BUILD)/corpus/$*

$(FUZZERS:%=$(BUILD)/%_fuzz): $(BUILD)/%_fuzz: $(BUILD)/test/fuzz/%_fuzz.o $(CORE_OBJECTS) $(BUILD)/link.flags
	$(SAY) 'link $@'
	$(Q)$(CXX) -o $@ $< $(CORE_OBJECTS) $(LINK_FLAGS) -fsanitize=fuzzer

PYTEST_LIMIT ?= 600
PYTEST = -m pytest $(PYTEST_FLAGS)
test-python: lib environment
	tools/with_deadline $(PYTEST_LIMIT) $(VENV)/bin/python $(PYTEST) test/single

test-boundary: environment
	tools/with_deadline $(PYTEST_LIMIT) $(VENV)/bin/python $(PYTEST) test/single/test_boundary.py

# ---- TensorFlow ------------------------------------------------------------------------------------
# Some files are run by all ranks of a job; others start their jobs themselves. A job takes seconds to start, so those of
# a folder share one.
RANK_TESTS := test/test_tensorflow.py test/mp
LAUNCHER_TESTS := $(sort $(wildcard test/test_tensorflow_*.py test/launched/test_*.py))
TENSORFLOW_RANKS ?= 1 2 3
TENSORFLOW_LIMIT ?= 900
LAUNCHED_LIMIT ?= 1800
.PHONY: test-tensorflow tensorflow-tests rank-tests launcher-tests
test-tensorflow: environment
	+@$(IN_ENVIRONMENT) ops mpi
	+@$(IN_ENVIRONMENT) tensorflow-tests

# PYTHON has the TensorFlow here, and MPICXX is the MPI's.
tensorflow-tests:
	+@$(WITH_FAMILY) rank-tests
	+@$(MAKE) --no-print-directory launcher-tests

rank-tests:
	@set -e; for ranks in $(TENSORFLOW_RANKS); do for tests in $(RANK_TESTS); do \
	    echo "== $$tests on $$ranks ranks"; \
	    tools/with_deadline $(TENSORFLOW_LIMIT) $(MPIRUN) -np $$ranks $(MPIRUN_FLAGS) \
	        $(PYTHON) $(PYTEST) -q --color=no $$tests; \
	done; done

launcher-tests:
	$(if $(LAUNCHER_TESTS),MPIRUN=$(MPIRUN) tools/with_deadline $(LAUNCHED_LIMIT) $(PYTHON) $(PYTEST) $(LAUNCHER_TESTS))

# What goes wrong in jobs, on purpose; it takes many minutes. PEER_PYTHON=/path/to/venv/bin/python runs the same with that
# environment's horovod.tensorflow; FAULTS_FLAGS='--document docs/testing.md' puts the table there.
FAULTS_FLAGS ?=
.PHONY: test-faults fault-tests
test-faults: environment
	+@$(IN_ENVIRONMENT) ops mpi
	+@$(IN_ENVIRONMENT) fault-tests
fault-tests:
	$(PYTHON) -m build_support.faults $(if $(PEER_PYTHON),--peer $(PEER_PYTHON)) $(FAULTS_FLAGS)

# For long: jobs that are hit at random moments, and collectives of all kinds with random delays.
RANDOM_FAULTS ?= 50
SOAK_SECONDS ?= 1800
.PHONY: test-random-faults random-fault-tests soak soak-tests
test-random-faults soak: environment
	+@$(IN_ENVIRONMENT) ops mpi
	+@$(IN_ENVIRONMENT) $(if $(filter soak,$@),soak-tests,random-fault-tests)
random-fault-tests:
	RANDOM_FAULTS=$(RANDOM_FAULTS) $(PYTHON) $(PYTEST) test/endurance/test_random_faults.py
soak-tests:
	SOAK_SECONDS=$(SOAK_SECONDS) $(PYTHON) $(PYTEST) -s -o faulthandler_timeout=0 test/endurance/test_soak.py

# Every TensorFlow with every MPI, each pair in a folder of its own. MATRIX_CELLS=2.15.1/mpich-5.0.2,... for some.
# MATRIX_FLAGS='--document docs/testing.md' puts the table there.
MATRIX_CELLS ?=
# Files of tests that start jobs themselves; all if empty.
MATRIX_LAUNCHED ?=
MATRIX_RANKS ?= 1 2 3 4
.PHONY: test-matrix
test-matrix:
	$(PYTHON) -m build_support.matrix $(if $(MATRIX_CELLS),--cells $(MATRIX_CELLS)) --ranks '$(MATRIX_RANKS)' \
	    $(if $(MATRIX_LAUNCHED),--launched '$(MATRIX_LAUNCHED)') $(MATRIX_FLAGS)

# Leaves (mpi/, cuda/) are left out: what they do shows only on the real thing.
COVERAGE_MINIMUM ?= 90
# Without those that only repeat the same lines with other numbers, which counting makes slow.
REPETITIONS := *Interleaving.*:Types/HostReduce.*:Local/Backend*Contract.*:Shm/Backend*Contract.*:ShmProcesses/*Contract.*
coverage:
	+$(MAKE) $(PARALLEL) VARIANT=coverage coverage-report
.PHONY: coverage coverage-report
coverage-report: $(TESTS)
	@find $(BUILD) -name '*.gcda' -delete
	tools/with_deadline $(TEST_LIMIT) $(TESTS) --gtest_brief=1 --gtest_filter='-$(REPETITIONS)' $(GTEST_FLAGS)
	$(GCOVR) --root . --object-directory $(BUILD) --filter 'horovod_tf/common/' \
	    --exclude 'horovod_tf/common/(mpi|cuda)/' --exclude-unreachable-branches --print-summary \
	    --fail-under-line $(COVERAGE_MINIMUM) $(BUILD)
