# Everything here needs python3 (3.11 or newer) and make, and nothing else: the rest is installed into .venv, also a C++
# compiler (of the PyPI package ziglang) where the PATH has none. With one, it is g++ 11, clang++ 14, or newer.
# pip reads its own settings (PIP_INDEX_URL, pip.conf, ...) as always. Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := $(wildcard src/core/*.cpp src/core/*.hpp src/core/processor/*.cpp)
CORE := CMakeLists.txt $(SOURCES) src/core/processor/native.h
# Without isolation and with a folder that stays, only what changed is compiled again; and of the instruction sets, only one.
BUILD := --no-build-isolation --config-settings=build-dir
SETS := --config-settings=cmake.define.BOXQTE_SETS
export PATH := $(abspath $(VENV))/zig:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo test coverage test-slow test-sanitized sanitized-part lint tidy format stub wheel check-arm64 tour reference bench bench-engine rq1 rq2 rq3 scaling docs clean

help: ## list the targets
	@sed -n "s/^\([a-z0-9-]*\):.*## /\1\t/p" $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.installed ## the paper's loan example, answered exactly
	@$(BIN)/boxqte demo

test: lint ## style, types, tests, and the examples in the docstrings
	$(PYTEST) -n $(WORKERS) -m "not slow" --doctest-modules src/boxqte tests

coverage: $(VENV)/.developing ## the tests once more, with the share of the lines that they run; takes twice as long
	$(PYTEST) -n $(WORKERS) -m "not slow" --doctest-modules --cov --cov-report=term src/boxqte tests

test-slow: $(VENV)/.developing ## the tests that take minutes
	$(PYTEST) -n $(WORKERS) -m slow --timeout=3600 -o faulthandler_timeout=3700 tests

# ONLY selects by name (pytest -k). The part for continuous integration has every kernel, in about a minute.
SANITIZED := engines/test_box engines/test_box_tolerance engines/test_box_dense engines/test_point engines/test_many_classes \
  engines/test_inside engines/test_sample engines/test_point_partners engines/test_draw_partners answers/test_samples \
  answers/test_samples_partners answers/test_verify engines/test_forbidden answers/test_forbidden
ONLY ?= test
test-sanitized: $(VENV)/.developing ## random problems against the oracle, under address and undefined-behaviour sanitizers
	@command -v g++ >/dev/null || { echo "make: test-sanitized needs g++ on the PATH: install g++ and its sanitizers" >&2; exit 1; }
	CXX=g++ $(PIP) install $(BUILD)=build/sanitized/core --no-deps --upgrade --target build/sanitized/python . \
	  --config-settings=cmake.define.BOXQTE_SANITIZE=address,undefined $(SETS)=baseline
	PYTHONPATH=build/sanitized/python LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(PYTEST) -n $(WORKERS) -m "not slow and not data" -k "$(ONLY)" --timeout=1200 -o faulthandler_timeout=1300 \
	  $(SANITIZED:%=tests/%.py)

# Of every kernel some: both searches, bounds inside open boxes, points, many classes, samples, verify.
PART := random_problems or odd_options or wide or few_bits or too_large or oracle_says or counterexamples or each_box or verdicts or random_rules
sanitized-part: ## the part of test-sanitized that continuous integration runs
	@$(MAKE) --no-print-directory test-sanitized ONLY="$(PART)"

lint: $(VENV)/.developing $(VENV)/.tidy ## ruff, mypy, import-linter, clang-format, and clang-tidy if the core has changed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)

# Half a minute on two cores without the analyzer, many minutes with it.
TIDY = [ -d $(VENV)/zig ] && echo "make: clang-tidy is left out: it needs the headers of an installed C++ compiler" || \
  printf '%s\n' $(filter %.cpp,$(SOURCES)) | xargs -n 1 -P $(WORKERS) sh -c '$(BIN)/clang-tidy --quiet $(1) $$0 -- $(HEADERS)'

$(VENV)/.tidy: $(SOURCES) .clang-tidy | $(VENV)/.developing
	@$(call TIDY,--checks=-clang-analyzer-*)
	@touch $@

tidy: $(VENV)/.developing ## clang-tidy with its analyzer: what lint has no time for
	@$(call TIDY)

# How a file of the core is read outside of cmake.
HEADERS = -std=c++20 -DBOXQTE_MODULE=_baseline -isystem $$($(BIN)/python -m nanobind --include_dir) \
  -isystem $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path(\"include\"))")

format: $(VENV)/.developing ## put Python and C++ into the house's form
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(SOURCES)

stub: $(VENV)/.developing ## write src/boxqte/_core/__init__.pyi, what mypy knows of the core
	$(BIN)/python src/core/make_stub.py

wheel: $(VENV)/.tools ## the source archive, a wheel made from it, and the wheel tried where there is no compiler (dist/)
	rm -rf dist build/wheel
	$(BIN)/python -c "from scikit_build_core.build import build_sdist; build_sdist('dist')"
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist dist/boxqte-*.tar.gz
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check --quiet install --only-binary :all: dist/boxqte-*.whl
	cd build/wheel && PATH=bin bin/python ../../tests/try_wheel.py

# zig has the headers of other systems. The files that bind Python are compiled for arm64 only: there its headers fit too.
check-arm64: $(VENV)/.developing ## compile the core for arm64, and check its sources for Windows and macOS
	@$(BIN)/python -c "import ziglang" 2>/dev/null || $(PIP) install ziglang
	mkdir -p build/arm64
	for file in $(filter %.cpp,$(SOURCES)); do \
	  $(BIN)/python -m ziglang c++ -target aarch64-linux-gnu -O2 $(HEADERS) -c $$file -o build/arm64/core.o || exit 1; done
	for target in x86_64-windows-gnu x86_64-macos aarch64-macos; do \
	  for file in $(filter-out src/core/bind% src/core/processor/%,$(filter %.cpp,$(SOURCES))); do \
	    $(BIN)/python -m ziglang c++ -target $$target -std=c++20 -fsyntax-only -Wall -Wextra -Werror $$file || exit 1; done; done

tour: ## a new user's hour in a fresh environment: clone, demo, audit, report, gate, pairs, notebook (BOXQTE_DATA=folder)
	tests/tour.sh

reference: $(VENV)/.developing ## write docs/reference.md from the docstrings and options, and the table of kinds in docs/models.md from the tests
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_kinds.py

bench: $(VENV)/.developing ## time the reference problems (needs the data sets: BOXQTE_DATA=folder)
	$(BIN)/python benchmarks/reference.py

bench-engine: $(VENV)/.developing ## the box engine on the 40 configurations of the paper's Tables 2 and 3 (needs the data sets)
	$(BIN)/python -m benchmarks.engine

# Rows that are done are not run again (bench-results); with the data sets in BOXQTE_DATA or ../shared/data. OPTIONS go on.
rq1 rq2 rq3 scaling: $(VENV)/.developing ## the paper's experiments, and how the engine scales
	$(BIN)/python -m benchmarks.paper $@ $(OPTIONS)

docs: $(VENV)/.developing ## the documentation as a site in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

clean: ## remove the environment and everything that is made
	rm -rf .venv build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f src/boxqte/_core/*.so src/boxqte/_core/*.pyd

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
	  echo "make: $(PYTHON) is missing or older than Python 3.11; name another one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null || { \
	  echo "make: $(PYTHON) has no venv or no ensurepip; install them (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps and the folder that the core is built in lie in the environment, so that removing it removes them.
$(VENV)/.tools: pyproject.toml | $(BIN)/python
	$(PIP) install cmake ninja $$($(BIN)/python -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])")
	@touch $@

$(VENV)/.installed: $(VENV)/.tools $(CORE)
	@[ -n "$$CXX" ] || command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  $(MAKE) --no-print-directory $(VENV)/zig/c++
	@echo "make: building the C++ core (about a minute)"
	@[ ! -d $(VENV)/zig ] || set -- $(ZIG); set -x; $(PIP) install $(BUILD)=$(VENV)/core $(SETS)=native --editable . "$$@"
	@touch $@

$(VENV)/.developing: pyproject.toml | $(VENV)/.installed
	$(PIP) install "boxqte[dev]"
	@touch $@

# cmake's own trials are not linked: zig builds its C++ library anew for every kind of program, a minute each.
ZIG := --config-settings=cmake.define.CMAKE_CXX_COMPILER=$(abspath $(VENV))/zig/c++ \
  --config-settings=cmake.define.CMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY

$(VENV)/zig/c++: .ci/zig
	@echo "make: no C++ compiler on the PATH: taking the one of the PyPI package ziglang, which needs some minutes"
	$(PIP) install ziglang
	@mkdir -p $(VENV)/zig
	@ln -sf "$$($(BIN)/python -c "import os, ziglang; print(os.path.dirname(ziglang.__file__))")/zig" $(VENV)/zig/zig
	@for tool in ar ranlib c++; do cp .ci/zig $(VENV)/zig/$$tool; done
