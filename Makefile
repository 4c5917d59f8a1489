# Two commands on a fresh machine (Python >= 3.11, make, a package index): make demo, make test.
# ARGS goes to pytest:  make test ARGS='-k reshard'
# VENV names another environment:  make test-all VENV=.venv-all

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
EXTRAS := $(VENV)/.extras
GENERATOR := build/generator/bin/openapi-python-client
# Processes of pytest; `make test WORKERS=0` runs them in one.
WORKERS ?= auto
ARGS ?=

.PHONY: help setup extras demo test test-all lint check pages check-pages docs bench stale gpu gpu-wheels lock client sbom clean

help:  ## This list
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 22

setup: $(READY)  ## Make .venv from requirements.lock, every file checked by its hash

demo: $(READY)  ## Plan GPT-2 in little memory on eight devices, run the plan, show it, write its report
	@$(VENV)/bin/shardplan demo

test: $(READY)  ## Run the tests, but for the slow ones: minutes
	@$(PY) -m pytest -n $(WORKERS) --run quick $(ARGS)

test-all: $(READY)  ## Run every test, the service's on both databases; `make extras` first, or many are skipped
	@$(PY) -m pytest -n $(WORKERS) -m 'not gpu' --databases all $(ARGS)

extras: $(EXTRAS)  ## Add the frameworks and tools that more tests want (.ci/run has those that pip does not)

lint: $(READY)  ## Format, lint, types
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy

check: lint test  ## Format, lint, types, tests

# The extra alone where `make extras` has not installed it already.
docs: $(READY)  ## Build the documentation site into build/docs, every link checked
	@$(PY) -c 'import mkdocs_gen_files, mkdocstrings_handlers.python, material' 2>/dev/null || \
	  { $(LOCK_VERSIONS) && $(INSTALL) --no-build-isolation --editable '.[docs]'; }
	@DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet --clean

NODE_READY := web/node_modules/.package-lock.json

pages: $(NODE_READY)  ## Build the report's and the service's page from web/ (needs node >= 20; what is built is committed)
	@npm --prefix web run --silent format
	@npm --prefix web run --silent build

check-pages: $(NODE_READY)  ## Types, lint and format of web/, and whether the committed pages are what it builds
	@npm --prefix web run --silent check

$(NODE_READY): web/package-lock.json
	@npm ci --prefix web --silent --no-audit --no-fund
	@touch $@

bench: $(READY)  ## Run every benchmark but those that say they take hours; results in benchmarks/results/
	@for script in $$(grep -L '^# Takes hours' $$(grep -lE '^from benchmarks.record import .*\bwrite\b' benchmarks/*.py)); do \
	  echo "== $$script"; $(PY) -m "benchmarks.$$(basename "$$script" .py)"; done

stale: $(READY)  ## Say which results are older than the code they measure
	@$(PY) -m benchmarks.stale

GPU_PY ?= python3

gpu-wheels: $(READY)  ## Fetch what a GPU machine's Python 3.12 may lack (pydantic) into build/wheels, to be carried there
	@$(PY) -m pip download --quiet --only-binary :all: --python-version 3.12 --platform manylinux2014_x86_64 --dest build/wheels \
	  "$$(grep -oE '^pydantic==[0-9.]+' requirements.lock)"

gpu:  ## What only a GPU can show, measured there: needs no network and no .venv, but GPU_PY=python3 with cupy (and torch)
	@$(GPU_PY) -c 'import pydantic' 2>/dev/null || for wheel in build/wheels/*.whl; do \
	  $(GPU_PY) -m zipfile -e "$$wheel" build/gpu-packages; done
	@PYTHONPATH=.:build/gpu-packages $(GPU_PY) -m benchmarks.gpu $(ARGS)

COMPILE = CUSTOM_COMPILE_COMMAND='make lock' $(PY) -m piptools compile --quiet --extra service --all-build-deps \
  --generate-hashes --allow-unsafe --strip-extras --resolver backtracking \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

lock: $(READY)  ## Choose versions anew within pyproject.toml: requirements.lock and, for images, deploy/requirements.lock
	@$(PY) -m pip install --quiet 'pip-tools>=7.5,<8'
	@$(COMPILE) --upgrade --extra dev --output-file requirements.lock pyproject.toml
	@$(COMPILE) --constraint requirements.lock --output-file deploy/requirements.lock pyproject.toml

client: $(READY) $(GENERATOR)  ## Generate a typed Python client of the service into build/client
	@$(PY) -m examples.clients.generate build/client

sbom: $(READY)  ## The images' bill of materials (CycloneDX) in build/sbom.json
	@mkdir -p build && $(PY) deploy/sbom.py > build/sbom.json

clean:  ## Remove the environment and every cache
	@rm -rf $(VENV) web/node_modules $(VENV).log $(VENV).lock $(VENV).old build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find planner solvers api tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Which Python makes the environment; deploy/set_up.py does the rest, and nothing where all is as it should be.
define SET_UP
@for python in python3.11 python3.12 python3.13 python3.14 python3 python; do \
  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
    exec "$$python" deploy/set_up.py $(VENV); fi; done; \
echo 'make setup: no Python >= 3.11 found (looked for python3.11 to python3.14, python3, python, with venv and' \
  'ensurepip; Debian: apt install python3-venv)' >&2; exit 1
endef

$(PY):
	$(SET_UP)

$(READY): requirements.lock pyproject.toml | $(PY)
	$(SET_UP)

# Versions that the lock names stay as they are. Of 2.13, pip has 2.13.0 for a CPU alone where an index offers it.
LOCKED = $(VENV)/locked.txt
LOCK_VERSIONS = grep -oE '^[a-z0-9._-]+==[^ ]+' requirements.lock > $(LOCKED)
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check --constraint $(LOCKED)
$(EXTRAS): $(READY) | $(GENERATOR)
	@$(LOCK_VERSIONS)
	@$(INSTALL) torch==2.13.0
	@$(INSTALL) --no-build-isolation --editable '.[test-all]'
	@touch $@

# In an environment of its own: the generator wants an older typer than ours.
$(GENERATOR): | $(READY)
	@$(PY) -m venv --clear build/generator
	@build/generator/bin/pip install --quiet --disable-pip-version-check 'openapi-python-client>=0.29,<0.30'
