# `make demo` and `make test` are all a fresh machine needs: the first target that wants it
# creates .venv, and a stamp per group of dependencies keeps later calls quick.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
OLDEST := .venv-oldest
NEWEST := .venv-newest
PYTEST_ARGS ?=
EXAMPLES ?=

# Two test processes, or two chains, that each start a BLAS pool run slower than one thread each.
ONE_THREAD_BLAS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD_BLAS) $(BIN)/python -m pytest

# What an older PyMC is most likely to break: its interfaces, the adaptor, data, distributions.
CORE := tests/private_interfaces tests/test_import.py tests/test_public_names.py \
  tests/test_readme.py tests/test_how_to.py tests/minibatches/test_data_loader.py \
  tests/densities/test_density.py tests/steps/test_adaptor.py tests/steps/test_errors.py \
  tests/distributions/test_von_mises_fisher.py tests/transforms/test_unit_vector.py

# Tests whose compiled functions run as plain Python too. Those of kernels and streams do not: they
# borrow arrays from machine code and count on numbers that overflow without a warning.
INTERPRETED := tests/manifolds/test_invariants.py -k 'not Product and not covariance and not nonfinite'

.DELETE_ON_ERROR:
.PHONY: help demo examples test test-slow test-oldest test-oldest-core test-newest coverage lint format \
  bench bench-history bench-compare docs package conda clean tests-of-oldest tests-of-newest

help:
	@echo "make demo              topics of the NumPy and SciPy docstrings; writes demo_output/"
	@echo "make examples          all examples in full, some hours; EXAMPLES=--quick half an hour"
	@echo "make test              the tests and doctests to run before each commit"
	@echo "make test-slow         all other tests, which run each night"
	@echo "make test-oldest       the test suite on the oldest PyMC, in .venv-oldest"
	@echo "make test-oldest-core  the part of it that continuous integration runs"
	@echo "make test-newest       the test suite on the newest PyMC, pre-releases too, in .venv-newest"
	@echo "make coverage          lines of Python that the tests reach; writes htmlcov/"
	@echo "make lint              ruff, mypy and import-linter"
	@echo "make format            let ruff rewrite the sources"
	@echo "make bench             the benchmarks; writes benchmarks/results/"
	@echo "make bench-history     speed of this commit beside that of earlier ones; adds to benchmarks/history/"
	@echo "make bench-compare     speed of this commit beside the last one that was kept"
	@echo "make docs              the documentation; writes docs/_build/html/"
	@echo "make package           wheel and sdist in dist/, tried in an empty environment"
	@echo "make conda             conda package of conda-recipe/, built and tested from that sdist"
	@echo "make clean             remove everything the other targets wrote"
	@echo "Another interpreter: make PYTHON=/path/to/python3.13 test"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] < (3, 15))' || { \
	  echo "pymc_geodesic needs Python 3.12, 3.13 or 3.14, but '$(PYTHON)' is:" >&2; \
	  $(PYTHON) --version >&2; \
	  echo "Name another interpreter, for example: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

# Older ones do not know the groups of dependencies in pyproject.toml.
$(STAMPS)/pip: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/examples: pyproject.toml | $(STAMPS)/pip
	$(BIN)/python -m pip install --quiet --editable '.[examples]'
	@touch $@

# $(STAMPS)/docs installs the package with the group `docs`, and so on.
$(STAMPS)/%: pyproject.toml | $(STAMPS)/pip
	$(BIN)/python -m pip install --quiet --editable '.[examples]' --group '$*'
	@touch $@

# The tests use one file of pymc-extras, its data loader. It works with this PyMC, but the package
# asks for an older one, which `make test-oldest` gives it.
$(STAMPS)/loader: $(STAMPS)/test
	$(BIN)/python -m pip install --quiet --no-deps 'pymc-extras==0.15.1'
	@touch $@

# Beyond the range that the package allows, which pip says and does.
$(STAMPS)/newest: $(STAMPS)/test
	$(BIN)/python -m pip install --quiet --upgrade --pre pymc pytensor
	@touch $@

demo: $(STAMPS)/examples
	$(BIN)/python examples/spherical_topics_of_docstrings.py

# In full; EXAMPLES=--quick runs the short versions, which `make test-slow` runs too.
examples: $(STAMPS)/test
	$(BIN)/python -m tests.examples.run $(EXAMPLES)

test: $(STAMPS)/loader
	$(PYTEST) -n 2 --dist loadfile $(PYTEST_ARGS)

test-slow: $(STAMPS)/loader
	$(PYTEST) -n 2 --dist loadfile -m slow $(PYTEST_ARGS)

test-oldest:
	$(MAKE) VENV=$(OLDEST) tests-of-oldest

test-oldest-core:
	$(MAKE) VENV=$(OLDEST) PYTEST_ARGS='$(CORE) $(PYTEST_ARGS)' tests-of-oldest

test-newest:
	$(MAKE) VENV=$(NEWEST) tests-of-newest

tests-of-oldest tests-of-newest: tests-of-%: $(STAMPS)/%
	$(PYTEST) -n 2 --dist loadfile $(PYTEST_ARGS)

# Coverage sees the lines that Python runs, and of compiled functions none, which pyproject.toml
# takes out of the figure. Those of the manifolds have a figure of their own, without the compiler.
coverage: $(STAMPS)/coverage $(STAMPS)/loader
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run --rcfile=/dev/null --branch \
	  --source=pymc_geodesic/manifolds --data-file=.coverage-interpreted -m pytest $(INTERPRETED)
	$(BIN)/coverage report --rcfile=/dev/null --data-file=.coverage-interpreted
	$(BIN)/coverage erase
	$(ONE_THREAD_BLAS) $(BIN)/coverage run -m pytest $(PYTEST_ARGS)
	$(BIN)/coverage combine
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMPS)/bench
	$(BIN)/python -m benchmarks.run

# Keeps the figures, draws them, and fails where something takes over a fifth longer.
bench-history: $(STAMPS)/bench
	$(BIN)/python -m benchmarks.speed_history record
	$(BIN)/python -m benchmarks.speed_history draw
	$(BIN)/python -m benchmarks.speed_history check

bench-compare: $(STAMPS)/bench
	$(BIN)/python -m benchmarks.speed_history compare

docs: $(STAMPS)/docs
	$(BIN)/sphinx-build -j auto -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_pages.py docs/_build/html

package: $(STAMPS)/package
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*
	.ci/try_package dist/*.whl
	.ci/try_package dist/*.tar.gz

# After `make package`. CHANNELS=file:///folder builds without a network.
conda: $(STAMPS)/conda
	$(BIN)/python .ci/build_conda_package.py dist/*.tar.gz $(CHANNELS)

clean:
	rm -rf demo_output docs/_build docs/api/generated benchmarks/results examples/output
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage .coverage[.-]* htmlcov dist
