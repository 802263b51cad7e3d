# Builds, tests and checks everything. `make help` lists what there is.
#
#   VARIANT=release|asan|ubsan|tsan|coverage   flavour of the native build, each in build/VARIANT
#   STRICT=1                                   warnings are errors (our CI; not for users)
#   PYTHON=python3                             interpreter for everything in Python

VARIANT ?= release
STRICT ?= 0
PYTHON ?= python3
CXX ?= g++
BUILD := build/$(VARIANT)

# ---- the native build, listed once -------------------------------------------------------------
CORE_SOURCES := $(sort $(wildcard horovod_tf/common/*.cc horovod_tf/common/base/*.cc \
    horovod_tf/common/protocol/*.cc horovod_tf/common/transport/*.cc \
    horovod_tf/common/collectives/*.cc horovod_tf/common/runtime/*.cc))
TEST_SOURCES := $(sort $(wildcard test/cpp/*.cc test/cpp/support/*.cc))
BENCH_SOURCES := $(sort $(wildcard benchmarks/*.cc))
CORE_OBJECTS := $(CORE_SOURCES:%.cc=$(BUILD)/%.o)
TEST_OBJECTS := $(TEST_SOURCES:%.cc=$(BUILD)/%.o)
BENCHES := $(BENCH_SOURCES:benchmarks/%.cc=$(BUILD)/%)
LIBRARY := $(BUILD)/libhorovod_common.so
TESTS := $(BUILD)/core_tests

# The core sees the standard library and itself. The boundary folder comes first and turns an include of a
# foreign header into an error, even where that header is installed system-wide.
unexport CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
CORE_INCLUDES := -Itools/boundary -I.

WARNINGS_1 := -Wconversion -Wshadow -Werror
FLAGS_release := -O3
FLAGS_asan := -O1 -fsanitize=address,leak -fno-omit-frame-pointer
FLAGS_ubsan := -O1 -fsanitize=undefined -fno-sanitize-recover=all
FLAGS_tsan := -O1 -fsanitize=thread
FLAGS_coverage := -O0 --coverage
CXXFLAGS_ALL := -std=c++17 -g -fPIC -fvisibility=hidden -Wall -Wextra $(WARNINGS_$(STRICT)) \
    $(FLAGS_$(VARIANT)) $(CXXFLAGS)
LDFLAGS_ALL := $(filter -fsanitize% --coverage,$(FLAGS_$(VARIANT))) -pthread $(LDFLAGS)

.PHONY: help lib test test-cpp test-python asan ubsan tsan coverage lint format docs bench clean
help:
	@echo 'make lib           build the core library'
	@echo 'make test          everything that runs here: native and Python'
	@echo 'make test-cpp      the native tests'
	@echo 'make test-python   the Python tests that need no launcher'
	@echo 'make asan|ubsan|tsan   the native tests under a sanitizer'
	@echo 'make coverage      line coverage of the core'
	@echo 'make lint          clang-format, clang-tidy, ruff, mypy'
	@echo 'make docs          regenerate docs/environment.md'
	@echo 'make bench         benchmarks of the core'

lib: $(LIBRARY)
	@cmp -s $(LIBRARY) horovod_tf/common/libhorovod_common.so || cp $(LIBRARY) horovod_tf/common/

$(LIBRARY): $(CORE_OBJECTS)
	$(CXX) -shared -o $@ $^ $(LDFLAGS_ALL)

$(BUILD)/horovod_tf/%.o: horovod_tf/%.cc
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS_ALL) $(CORE_INCLUDES) -MMD -MP -c $< -o $@

$(BUILD)/test/%.o: test/%.cc
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS_ALL) $(CORE_INCLUDES) -MMD -MP -c $< -o $@

$(BUILD)/benchmarks/%.o: benchmarks/%.cc
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS_ALL) $(CORE_INCLUDES) -MMD -MP -c $< -o $@

$(TESTS): $(TEST_OBJECTS) $(CORE_OBJECTS)
	$(CXX) -o $@ $^ $(LDFLAGS_ALL) -lgtest -lgtest_main

$(BUILD)/%: $(BUILD)/benchmarks/%.o $(CORE_OBJECTS)
	$(CXX) -o $@ $^ $(LDFLAGS_ALL)

# A hang is a failure: the hard limit prints stacks first.
TEST_LIMIT ?= 300
test-cpp: $(TESTS)
	tools/with_deadline $(TEST_LIMIT) $(TESTS) --gtest_brief=1 $(GTEST_FLAGS)

asan ubsan tsan:
	$(MAKE) VARIANT=$@ test-cpp

bench: $(BENCHES)
	for bench in $(BENCHES); do $$bench || exit 1; done

clean:
	rm -rf build

-include $(CORE_OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d) $(BENCH_SOURCES:%.cc=$(BUILD)/%.d)
