# Everything here needs python3 (3.11 or newer) and make, and nothing else: the rest is installed into .venv.
# pip reads its own settings (PIP_INDEX_URL, pip.conf, ...) as always. Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint tour reference bench bench-engine clean

help: ## list the targets
	@sed -n "s/^\([a-z-]*\):.*## /\1\t/p" $(MAKEFILE_LIST) | expand -t 12

demo: $(VENV)/.installed ## the paper's loan example, answered exactly
	@$(BIN)/boxqte demo

test: lint ## style, types, tests with a coverage figure, and the examples in the docstrings
	$(BIN)/python -m boxqte.engines.box
	$(PYTEST) -n $(WORKERS) -m "not slow" --doctest-modules --cov --cov-report=term src/boxqte tests

test-slow: $(VENV)/.developing ## the tests that take minutes
	$(PYTEST) -n $(WORKERS) -m slow --timeout=3600 -o faulthandler_timeout=3700 tests

lint: $(VENV)/.developing ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

tour: ## a new user's hour in a fresh environment: clone, demo, audit, report, gate, pairs, notebook (BOXQTE_DATA=folder)
	tests/tour.sh

reference: $(VENV)/.developing ## write docs/reference.md from the docstrings and options
	$(BIN)/python docs/make_reference.py

bench: $(VENV)/.developing ## time the reference problems (needs the data sets: BOXQTE_DATA=folder)
	$(BIN)/python benchmarks/reference.py

bench-engine: $(VENV)/.developing ## the box engine on the 40 configurations of the paper's Tables 2 and 3 (needs the data sets)
	$(BIN)/python -m benchmarks.engine

clean: ## remove the environment and everything that is made
	rm -rf .venv build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
	  echo "make: $(PYTHON) is missing or older than Python 3.11; name another one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null || { \
	  echo "make: $(PYTHON) has no venv or no ensurepip; install them (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps lie in the environment, so that removing it removes them.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.developing: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@ $(VENV)/.installed
