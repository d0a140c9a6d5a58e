# `make demo` and `make test` need Python 3.11 or newer and make; everything else is set up here.

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python,\
            $(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2
# One BLAS thread per test worker: the workers already use the cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help env demo test test-slow test-all lint types docs build bench bench-gpu clean

help:
	@echo "make demo       the whole chain on a small data set, in under a minute"
	@echo "make test       the test suite"
	@echo "make test-all   the slow tests too; test-slow: those alone"
	@echo "make lint       ruff, pyright, import-linter"
	@echo "make docs       the documentation site, strictly"
	@echo "make build      wheel and sdist"
	@echo "make bench      benchmarks on this machine; bench-gpu: those that want a GPU"

env: $(READY)

$(READY): requirements/dev.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "marginflow needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)
	$(BIN)/marginflow demo

test: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS)

test-slow: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) -m slow

test-all: test test-slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

build: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

bench: $(READY)
	$(BIN)/python -m pip install --quiet --no-deps --requirement requirements/bench.txt
	$(BIN)/python -m benchmarks --limit 240 --page docs/benchmarks/cpu.md

bench-gpu: $(READY)
	$(BIN)/python -m benchmarks --gpu --page docs/benchmarks/gpu.md

clean:
	rm -rf build dist site demo-out .pytest_cache .ruff_cache .hypothesis .import_linter_cache
