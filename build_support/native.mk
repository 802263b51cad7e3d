# ---- the native build, listed once -------------------------------------------------------------
CORE_FOLDERS := base protocol shm transport collectives runtime
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
# Clang counts lists of its sanitizers among what was read; the other variants have checked the same sources.
ifeq ($(VARIANT),fuzz)
CHECK_BOUNDARY = :
endif

# -ffp-contract=off: the same bits on every machine (collectives/reduce_kernels.inc).
LANGUAGE := -std=c++17 -ffp-contract=off -Wall -Wextra
WARNINGS_1 := -Wconversion -Wshadow -Werror
FLAGS_release := -O3
# Two sanitizers in one build: neither hides what the other finds, and compiling is most of what they cost.
FLAGS_asan := -O1 -fsanitize=address,leak,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_tsan := -O1 -fsanitize=thread
# Clang's, as the fuzzer is.
FLAGS_fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_coverage := -O1
ifeq ($(FLAGS_$(VARIANT)),)
$(error VARIANT=$(VARIANT) is none of release, asan, tsan, fuzz, coverage)
endif
# -g1 has what stacks need; CXXFLAGS=-g has the rest. Tests are compiled often and run for seconds: a compiler that
# optimises them costs more than it saves.
TEST_FLAGS := -O0
# Of the core alone: what the tests do is their own affair, and counting is slow, as threads share the counters. Those are
# atomic, or gcov reports negative numbers.
COUNT_coverage := --coverage -fprofile-update=atomic
CORE_FLAGS := $(COUNT_$(VARIANT))
# What is exported is tools/exports.map's; that somebody replaces our functions is nothing to prepare for.
COMPILE_FLAGS := $(LANGUAGE) -g1 -fPIC -fno-semantic-interposition -fvisibility-inlines-hidden $(WARNINGS_$(STRICT)) $(FLAGS_$(VARIANT)) \
    $(CORE_INCLUDES) $(CXXFLAGS)
LINK_FLAGS := $(filter -fsanitize% --coverage,$(FLAGS_$(VARIANT)) $(CORE_FLAGS)) -pthread -ldl $(LDFLAGS)
# A sanitizer's runtime is found in the program, so only a plain library can be asked to be complete.
LIBRARY_FLAGS := -shared -Wl,--version-script=tools/exports.map \
    $(if $(filter -fsanitize%,$(LINK_FLAGS)),,-Wl,-z,defs)

.PHONY: lib print-core-compile clean
lib: $(PACKAGED_LIBRARY)

# Replaced in one step: a running process keeps the file that it has mapped.
$(PACKAGED_LIBRARY): $(LIBRARY)
	@cmp -s $< $@ || { cp $< $@.new && mv $@.new $@; }
	@touch $@

$(LIBRARY): $(CORE_OBJECTS) tools/exports.map $(BUILD)/link.flags
	$(SAY) 'link $@'
	$(Q)$(CXX) $(LIBRARY_FLAGS) -o $@ $(CORE_OBJECTS) $(LINK_FLAGS)

# Whatever changes what a command does is a file that its outputs depend on; it is rewritten only when its
# text changes. So another compiler, flag or list of sources rebuilds exactly what it must.
KEEP_IF_SAME = @mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$1)' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$1)' >$@
$(BUILD)/compile.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(COMPILE_FLAGS) $(CORE_FLAGS) for tests: $(TEST_FLAGS))
$(BUILD)/link.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(LIBRARY_FLAGS) $(LINK_FLAGS) $(CORE_OBJECTS))
$(BUILD)/test.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(LINK_FLAGS) $(CORE_OBJECTS) $(TEST_OBJECTS))

COMPILE_COMMAND = $(CXX) $(COMPILE_FLAGS) $(EXTRA_FLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@
$(BUILD)/horovod_tf/%.o: EXTRA_FLAGS = $(CORE_FLAGS)
$(BUILD)/horovod_tf/%.o: horovod_tf/%.cc $(BUILD)/compile.flags $(BUILD)/system.folders
	@mkdir -p $(@D)
	$(SAY) 'compile $<'
	$(Q)$(COMPILE_COMMAND)
	@$(CHECK_BOUNDARY)

$(BUILD)/test/%.o: EXTRA_FLAGS := $(TEST_FLAGS)
$(BUILD)/test/%.o: test/%.cc $(BUILD)/compile.flags $(BUILD)/system.folders | $(BUILD)/gtest.found
	@mkdir -p $(@D)
	$(SAY) 'compile $<'
	$(Q)$(COMPILE_COMMAND)
	@$(CHECK_BOUNDARY)

$(BUILD)/benchmarks/%.o: benchmarks/%.cc $(BUILD)/compile.flags $(BUILD)/system.folders
	@mkdir -p $(@D)
	$(SAY) 'compile $<'
	$(Q)$(COMPILE_COMMAND)
	@$(CHECK_BOUNDARY)

# Where the compiler looks by itself, without what a user adds.
$(BUILD)/system.folders: tools/check_includes.awk $(BUILD)/compile.flags
	@LC_ALL=C $(CXX) $(filter --sysroot% --gcc-toolchain% -stdlib% -m%,$(CXXFLAGS)) -E -v -x c++ /dev/null >$@ 2>&1

# How a core file is compiled, for tests and editors.
print-core-compile:
	@echo '$(CXX) $(COMPILE_FLAGS)'

clean:
	rm -rf build $(PACKAGED_LIBRARY) horovod_tf/common/libhorovod_mpi_*.so $(PACKAGED_OPS) $(OPS_BUILD_INFO)
