# ---- documents and benchmarks ------------------------------------------------------------------
.PHONY: docs bench bench-control-plane-callgrind
docs: lib
	$(PYTHON) -c 'from horovod_tf.common import basics; print(basics.environment_markdown(), end="")' \
	    >docs/environment.md.new
	mv docs/environment.md.new docs/environment.md

$(BENCHES): $(BUILD)/%: $(BUILD)/benchmarks/%.o $(BENCH_SUPPORT:%.cc=$(BUILD)/%.o) $(CORE_OBJECTS) $(BUILD)/link.flags
	$(SAY) 'link $@'
	$(Q)$(CXX) -o $@ $(filter %.o,$^) $(LINK_FLAGS)

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

-include $(DEPENDENCIES) $(SAFETY_STAMPS:.safety=.d)
