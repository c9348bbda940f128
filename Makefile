# `make demo` and `make test` are all a fresh machine needs: the first target that wants it
# creates .venv, and a stamp per group of dependencies keeps later calls quick.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PYTEST_ARGS ?=

# Two test processes, or two chains, that each start a BLAS pool run slower than one thread each.
ONE_THREAD_BLAS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.DELETE_ON_ERROR:
.PHONY: help demo test test-slow lint format bench docs clean

help:
	@echo "make demo       topics of the NumPy and SciPy docstrings; writes demo_output/"
	@echo "make test       the test suite and the doctests"
	@echo "make test-slow  the tests that take longer"
	@echo "make lint       ruff and mypy"
	@echo "make format     let ruff rewrite the sources"
	@echo "make bench      the benchmarks; writes benchmarks/results/"
	@echo "make docs       the documentation; writes docs/_build/html/"
	@echo "make clean      remove everything the other targets wrote"
	@echo "Another interpreter: make PYTHON=/path/to/python3.13 test"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] < (3, 15))' || { \
	  echo "pymc_geodesic needs Python 3.12, 3.13 or 3.14, but '$(PYTHON)' is:" >&2; \
	  $(PYTHON) --version >&2; \
	  echo "Name another interpreter, for example: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

# $(STAMPS)/examples installs the package with the extra `examples`, and so on.
$(STAMPS)/%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@mkdir -p $(STAMPS)
	@touch $@

# The tests use one file of pymc-extras, its data loader. It works with this PyMC, but the package
# asks for an older one.
$(STAMPS)/loader: $(STAMPS)/dev
	$(BIN)/python -m pip install --quiet --no-deps 'pymc-extras==0.15.1'
	@touch $@

demo: $(STAMPS)/examples
	$(BIN)/python examples/spherical_topics_of_docstrings.py

test: $(STAMPS)/loader
	$(ONE_THREAD_BLAS) $(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

test-slow: $(STAMPS)/dev
	$(ONE_THREAD_BLAS) $(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMPS)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMPS)/bench
	$(BIN)/python -m benchmarks.run

docs: $(STAMPS)/docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf demo_output docs/_build docs/api/generated benchmarks/results examples/output
	rm -rf .pytest_cache .mypy_cache .ruff_cache
