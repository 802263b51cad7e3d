# ---- MPI: one library for each family, and the only code that sees mpi.h -----------------------
MPICXX ?= mpicxx
MPIRUN ?= $(patsubst %mpicxx,%mpirun,$(MPICXX))
MPI_SOURCES := $(sort $(wildcard horovod_tf/common/mpi/*.cc))
MPI_TEST_SOURCES := $(sort $(wildcard test/cpp_mp/*.cc test/cpp/contract/*.cc))
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

.PHONY: mpi mpi-leaf test-mpi mpi-tests
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
	$(SAY) 'compile $<'
	$(Q)$(MPICXX) $(MPI_FLAGS) -MMD -MP -c $< -o $@
$(MPI_LIBRARY): $(MPI_OBJECTS) $(LIBRARY) $(MPI_BUILD)/mpi.flags
	$(SAY) 'link $@'
	$(Q)$(MPICXX) -o $@ $(MPI_OBJECTS) $(MPI_LINK_FLAGS)
# Of objects, like the core's own tests.
$(MPI_TESTS): $(MPI_TEST_OBJECTS) $(MPI_OBJECTS) $(CORE_OBJECTS) $(MPI_BUILD)/mpi.flags
	$(SAY) 'link $@'
	$(Q)$(MPICXX) -o $@ $(filter %.o,$^) $(LINK_FLAGS) -lgtest

-include $(MPI_OBJECTS:.o=.d) $(MPI_TEST_OBJECTS:.o=.d)
