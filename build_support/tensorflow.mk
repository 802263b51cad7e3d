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

.PHONY: ops
# The library first: what says for which TensorFlow it is must never be newer than it.
ops: lib $(OPS_LIBRARY)
	@cmp -s $(OPS_LIBRARY) $(PACKAGED_OPS) || { cp $(OPS_LIBRARY) $(PACKAGED_OPS).new && mv $(PACKAGED_OPS).new $(PACKAGED_OPS); }
	@cmp -s $(TENSORFLOW).build-info $(OPS_BUILD_INFO) || cp $(TENSORFLOW).build-info $(OPS_BUILD_INFO)

# Importing TensorFlow takes seconds, so it is asked only when it is another one than last time.
$(TENSORFLOW).which: FORCE
	$(call KEEP_IF_SAME,$(shell $(ASK_FLAGS) tensorflow which))
$(TENSORFLOW).compile $(TENSORFLOW).link $(TENSORFLOW).build-info: $(TENSORFLOW).%: $(TENSORFLOW).which build_support/flags.py
	$(Q)$(ASK_FLAGS) tensorflow $* >$@
$(BUILD)/ops.flags: FORCE
	$(call KEEP_IF_SAME,$(CXX) $(OPS_FLAGS) $(OPS_LINK_FLAGS) $(OPS_OBJECTS))

$(BUILD)/horovod_tf/ops/%.o: horovod_tf/ops/%.cc $(BUILD)/ops.flags $(TENSORFLOW).compile
	@mkdir -p $(@D)
	$(SAY) 'compile $<'
	$(Q)$(CXX) $(OPS_FLAGS) -MMD -MP -c $< -o $@

$(OPS_LIBRARY): $(OPS_OBJECTS) $(LIBRARY) $(TENSORFLOW).link $(TENSORFLOW).build-info
	$(SAY) 'link $@'
	$(Q)$(CXX) -o $@ $(OPS_OBJECTS) $(OPS_LINK_FLAGS)

-include $(OPS_OBJECTS:.o=.d)
