# ---- lint --------------------------------------------------------------------------------------
CXX_FILES := $(sort $(wildcard $(foreach folder,horovod_tf/common $(CORE_FOLDERS:%=horovod_tf/common/%) \
    horovod_tf/common/mpi horovod_tf/ops test/cpp_mp test/cpp \
    test/cpp/support test/cpp/contract benchmarks benchmarks/support,$(folder)/*.h $(folder)/*.cc $(folder)/*.inc)))
LINT := build/lint
TIDY_STAMPS := $(CORE_SOURCES:%.cc=$(LINT)/%.tidy)
SAFETY_STAMPS := $(patsubst %.cc,$(LINT)/%.safety,$(CORE_SOURCES) $(TEST_SOURCES) $(BENCH_SOURCES) $(BENCH_SUPPORT))
PYTHON_FILES := horovod_tf benchmarks build_support examples setup.py test tools/with_deadline
LINT_JOBS ?= 2
LINT_FLAGS := $(LANGUAGE) $(WARNINGS_1) -Wthread-safety $(CORE_INCLUDES)

# exit() destroys what has a destructor while the background thread still works: no object of the core that lives as
# long as the process may have one.
$(CORE_SOURCES:%.cc=$(LINT)/%.safety): LINT_FLAGS += -Wexit-time-destructors

.PHONY: lint lint-cpp lint-python format
# All findings at once, not the first file's only.
lint: lint-environment
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

lint-python: lint-environment
	$(LINT_VENV)/bin/python -m ruff check $(PYTHON_FILES)
	$(LINT_VENV)/bin/python -m ruff format --check $(PYTHON_FILES)
	$(LINT_VENV)/bin/python -m mypy

format: lint-environment
	$(CLANG_FORMAT) -i $(CXX_FILES)
	$(LINT_VENV)/bin/python -m ruff check --fix $(PYTHON_FILES)
	$(LINT_VENV)/bin/python -m ruff format $(PYTHON_FILES)
