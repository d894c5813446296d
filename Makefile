# Each target makes the environment it needs when that is missing or was left half-made:
# the stamp `complete` is written last.

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12,$(shell $(p) -c 'print("$(p)")' 2>/dev/null)))
TVM ?= 0.27
TVMS := 0.25 0.26 0.27
VENV := .venv
BIN := $(VENV)/bin
# two files of tests at a time: most of them wait for a worker or a compiler of their own;
# in the order of tests/conftest.py, not the files with most tests first
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder
TUNE ?= squeezenet --target cpu --effort quick --work-dir runs/squeezenet

.PHONY: tune test test-drawn test-all lint bench digest oracle mutations matrix minimum ansor relay-env relay-smoke test-relay clean
.DELETE_ON_ERROR:

tune: $(VENV)/complete
	$(BIN)/pruner-ms tune $(TUNE)

test: $(VENV)/complete
	$(BIN)/python -m pytest $(PARALLEL)

# The same with another draw of the slow tests; it prints its seed.
test-drawn: $(VENV)/complete
	PRUNER_MS_SEED=$$$$ $(BIN)/python -m pytest $(PARALLEL)

# All tests marked `heavy`, of which `make test` draws one in sixteen, and all cases of those marked
# `sampled`.
test-all: $(VENV)/complete
	PRUNER_MS_ALL_TESTS=1 $(BIN)/python -m pytest $(PARALLEL)

lint: $(VENV)/complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/complete
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-only

# What the interpreter, the draft, the features and fifteen searches say, beside what they said when
# it was written down: minutes. A change that is to keep behaviour shows no difference.
digest: $(VENV)/complete
	$(BIN)/python -m benchmarks.freeze $(DIGEST)

# The closed form against the oracle, 2,000 rows per operator and target: hours; goes on where it
# was stopped. After a change of the interpreter only what then says something else is compared.
oracle: $(VENV)/complete
	$(BIN)/python -m benchmarks.oracle $(ORACLE)

# Whether breaking any one rule of the interpreter shows: hours.
mutations: $(VENV)/complete
	$(BIN)/python -m benchmarks.mutations $(MUTATIONS)

# The name tests, the sample of the closed form against the oracle and the TensorCore instructions,
# on every supported TVM.
matrix: $(TVMS:%=.venv-%/complete)
	set -e; for v in $(TVMS); do PRUNER_MS_ALL_TESTS=1 .venv-$$v/bin/python -m pytest tests/test_names*.py tests/test_script_cache.py tests/symbolic/test_closed_form.py tests/session/test_imports.py tests/tensorcore/test_implementations.py; done

# The whole suite on the oldest libraries that pyproject.toml allows, numpy 1.26 among them.
minimum: .venv-minimum/complete
	.venv-minimum/bin/python -m pytest $(PARALLEL)

# TVM 0.17 with auto_scheduler, for the race's `ansor` and `stock-0.17`; CPU cores only.
ansor: .venv-ansor/complete

# The same TVM 0.17 with this package: Relay, the names, the closed form against lowered TIR.
relay-env: .venv-relay/complete
relay-smoke: .venv-relay/complete
	.venv-relay/bin/python -m pytest tests/test_names.py tests/session/test_imports.py "tests/test_documents.py::test_a_block_runs" -k "not README"
test-relay: .venv-relay/complete
	.venv-relay/bin/python -m pytest $(PARALLEL) tests/relay tests/test_names*.py tests/symbolic/test_closed_form.py tests/symbolic/test_stages.py tests/session/test_imports.py tests/test_documents.py -k "not README"

clean:
	rm -rf .venv .venv-* build *.egg-info

# $(1) constraints, $(2) extras. torch is named by its version, so that pip takes a CPU build where
# one is at hand; WITH_TORCH=no leaves it out (it is several gigabytes from the package index).
WITH_TORCH ?= $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info[:2] == (3, 11) else "no")')
define empty
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv --clear $(@D)
endef
define venv
	$(call empty)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$(2)]' -c constraints/$(1).txt
endef
define torch
	@if test "$(WITH_TORCH)" = yes; then \
	  $(@D)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 -c constraints/$(1).txt; \
	else \
	  echo "torch is left out: strategy=\"pruner\" works without, cost_model=\"pacm\" does not (WITH_TORCH=yes installs it)"; \
	fi
endef

$(VENV)/complete: pyproject.toml constraints/tvm-$(TVM).txt constraints/common.txt
	$(call venv,tvm-$(TVM),tvm$(COMMA)onnx$(COMMA)report$(COMMA)dev)
	$(call torch,tvm-$(TVM))
	touch $@

.venv-minimum/complete: pyproject.toml constraints/minimum.txt
	$(call venv,minimum,tvm$(COMMA)onnx$(COMMA)report$(COMMA)test)
	$(call torch,minimum)
	touch $@

.venv-ansor/complete: constraints/ansor.txt benchmarks/race/old/environment.py
	$(call empty)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(ANSOR) -c constraints/ansor.txt
	$(@D)/bin/python benchmarks/race/old/environment.py constraints/ansor.txt
	touch $@

.venv-relay/complete: pyproject.toml constraints/relay.txt benchmarks/race/old/environment.py
	$(call empty)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(ANSOR) -e '.[onnx,test]' -c constraints/relay.txt
	$(call torch,relay)
	$(@D)/bin/python benchmarks/race/old/environment.py constraints/relay.txt
	touch $@

.venv-%/complete: pyproject.toml constraints/tvm-%.txt constraints/common.txt
	$(call venv,tvm-$*,tvm$(COMMA)onnx$(COMMA)test)
	$(call torch,tvm-$*)
	touch $@

# What TVM 0.17 imports
ANSOR := attrs cloudpickle decorator ml_dtypes numpy psutil scipy setuptools tornado typing_extensions xgboost-cpu

COMMA := ,
