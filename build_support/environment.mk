# ---- environments, and what runs in them ---------------------------------------------------------
# What needs Python packages finds them in a folder of ours, never on the machine; build_support/environment.py
# decides whether it is still right, in a few hundredths of a second.
VENV ?= .venv
REQUIREMENTS ?= tools/requirements-tensorflow.txt
LINT_VENV := .venv-lint

# MPICXX has a value by now, but not one that somebody has chosen.
ENVIRONMENT_MPICXX := $(if $(filter command environment,$(firstword $(origin MPICXX))),$(MPICXX),$(abspath $(VENV))/bin/mpicxx)
# Calls make again, for the TensorFlow and the MPI of the environment.
IN_ENVIRONMENT = $(MAKE) --no-print-directory $(PARALLEL) PYTHON=$(abspath $(VENV))/bin/python MPICXX=$(ENVIRONMENT_MPICXX)

.PHONY: environment lint-environment demo run-demo
environment:
	@$(PYTHON) build_support/environment.py $(VENV) $(REQUIREMENTS)
lint-environment:
	@$(PYTHON) build_support/environment.py $(LINT_VENV) tools/requirements-lint.txt

# ---- the demo ------------------------------------------------------------------------------------
DEMO_RANKS ?= 2
DEMO_FLAGS ?=
DEMO_LIMIT ?= 600
DEMO := build/demo
demo: environment
	+@$(IN_ENVIRONMENT) ops mpi
	+@$(IN_ENVIRONMENT) run-demo

run-demo:
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@+$(WITH_FAMILY) launch-demo

.PHONY: launch-demo
LAUNCH = $(MPIRUN) -np $(DEMO_RANKS) $(strip $(MPIRUN_FLAGS)) $(PYTHON) examples/digits_graph.py
launch-demo:
	@PYTHONPATH=. HOROVOD_TIMELINE=$(DEMO)/timeline.json tools/with_deadline $(DEMO_LIMIT) \
	    $(LAUNCH) --checkpoints $(DEMO)/checkpoints $(DEMO_FLAGS)
	@echo
	@echo 'timeline:    $(DEMO)/timeline.json (open it in chrome://tracing or https://ui.perfetto.dev)'
	@echo 'checkpoints: $(DEMO)/checkpoints'
	@echo 'by hand:     $(if $(wildcard $(VENV)/.stamp),,PYTHONPATH=. )$(LAUNCH)'
