# `make` alone lists the targets. Everything runs in .venv, which `make setup` makes and keeps up to date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := build/native
FLASHINFER := tests/kernels/flashinfer/requirements.txt
CMAKE = $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	-DPython_EXECUTABLE=$(abspath $(BIN))/python --log-level=WARNING
# A core a process; a file's tests stay together, and with them what they share.
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile
# Python and torch leave memory to the end of the process; of what the module leaks, its objects' destructors tell.
ASAN = LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

.DEFAULT_GOAL := help
.PHONY: help setup native demo test test-all sanitize lint fmt bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(STAMP) native ## make .venv, install radixrt into it, editable, with all that development needs, build the kernels

$(STAMP): pyproject.toml constraints.txt $(FLASHINFER)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(FLASHINFER)
	touch $@

native: $(NATIVE)/CMakeCache.txt ## build the native CPU kernels into the checkout; without a compiler there are none
	@$(BIN)/cmake --build $(NATIVE)

# Anew for another CMakeLists.txt or nanobind; an interrupted one leaves no cache that looks whole.
$(NATIVE)/CMakeCache.txt: $(STAMP)
	$(CMAKE) -B $(NATIVE) || { rm -f $@; exit 1; }
	@touch $@

demo: setup ## ten agents over one shared setting, then a JSON object over HTTP, on a real model
	$(BIN)/python examples/few_shot_agents.py
	$(BIN)/python examples/json_over_http.py

test: lint ## lint, types and every test but the long ones and those of lesser processors' kernels
	$(PYTEST) -m 'not long and not level'

sanitize: setup ## the native kernels' tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
	$(CMAKE) -B build/sanitize -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRADIXRT_SANITIZE=address,undefined \
		-DRADIXRT_MODULE_FOLDER=$(CURDIR)/build/sanitize/module
	$(BIN)/cmake --build build/sanitize
	$(ASAN) RADIXRT_NATIVE=build/sanitize/module $(BIN)/python -m pytest -p tests.support.native_module \
		-m 'not long' -k 'cpu and not test_programs' tests/kernels/cpu tests/conformance
	RADIXRT_SANITIZE=address,undefined $(BIN)/python -m pytest tests/kernels/cpu/test_programs.py
	RADIXRT_SANITIZE=thread $(BIN)/python -m pytest tests/kernels/cpu/test_programs.py

test-all: lint $(if $(shell command -v c++),sanitize) ## lint, types, every test, and sanitize where there is a compiler
	$(PYTEST)

lint: setup ## ruff (check and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict -p radixrt
	$(BIN)/mypy --strict tests/typing

fmt: setup ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All but the check of a GPU.
BENCHMARKS = $(filter-out gpu_check,$(patsubst benchmarks/%.py,%,$(shell grep -l __main__ benchmarks/*.py))) programs
bench: setup ## run all of benchmarks/
	@set -e; for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name; done

clean: ## remove caches and build output; .venv stays
	rm -rf build dist kernels/cpu/_native*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
