# ---- documents and benchmarks ------------------------------------------------------------------
.PHONY: docs bench bench-native bench-table bench-drawing bench-control-plane-callgrind
docs: lib
	$(PYTHON) -c 'from horovod_tf.common import basics; print(basics.environment_markdown(), end="")' \
	    >docs/environment.md.new
	mv docs/environment.md.new docs/environment.md

$(BENCHES): $(BUILD)/%: $(BUILD)/benchmarks/%.o $(BENCH_SUPPORT:%.cc=$(BUILD)/%.o) $(CORE_OBJECTS) $(BUILD)/link.flags
	$(SAY) 'link $@'
	$(Q)$(CXX) -o $@ $(filter %.o,$^) $(LINK_FLAGS)

# Ratios of P1 to P8 (docs/performance.md), beside a peer if PEER_PYTHON names an interpreter that has one.
PEER_PYTHON ?=
PEER_MODULE ?= horovod.tensorflow
BENCH_FLAGS ?=
NATIVE_BENCH_LIMIT ?= 120
bench: environment bench-native bench-drawing
	+@$(IN_ENVIRONMENT) ops mpi
	+@$(IN_ENVIRONMENT) bench-table

bench-native: $(BENCHES)
	@set -e; for bench in $(BENCHES); do echo "== $$bench"; tools/with_deadline $(NATIVE_BENCH_LIMIT) $$bench; done

# Only into an environment that was made here, and no reason to fail: without it there is no picture.
bench-drawing: environment
	@[ ! -f $(VENV)/.stamp ] || $(VENV)/bin/python -c 'import matplotlib' 2>/dev/null || \
	    $(PYTHON) -m pip --python $(VENV)/bin/python install --quiet --disable-pip-version-check \
	        --requirement tools/requirements-bench.txt || echo 'matplotlib could not be installed: no picture'

# PYTHON has the TensorFlow here, and the operations are built for it. Its own deadline is in the program.
bench-table: $(BUILD)/shm_backend
	$(PYTHON) benchmarks/table.py --mpirun $(MPIRUN) --native $(BUILD) \
	    $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON) --peer-module $(PEER_MODULE)) $(BENCH_FLAGS)

# Instructions do not depend on what else the machine does. The difference of two runs leaves out the first step.
CALLGRIND_CASE ?= --ranks 64 --tensors 1000
bench-control-plane-callgrind: $(BUILD)/control_plane
	@set -e; count() { $(VALGRIND) --tool=callgrind --callgrind-out-file=$(BUILD)/callgrind.out $< $(CALLGRIND_CASE) \
	    --steps $$1 2>&1 | sed -n 's/.*Collected : *\([0-9][0-9]*\).*/\1/p'; }; \
	tensors=$$(echo '$(CALLGRIND_CASE)' | sed 's/.*--tensors \([0-9]*\).*/\1/'); \
	few=$$(count 2); many=$$(count 12); \
	echo "control plane, $(CALLGRIND_CASE), steady step: $$(( (many - few) / 10 / tensors )) instructions per tensor" \
	    "(all ranks' messages on rank 0, and one rank's own work)"

-include $(DEPENDENCIES) $(SAFETY_STAMPS:.safety=.d)
