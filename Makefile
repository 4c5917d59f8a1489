# Two commands on a fresh machine (Python >= 3.11, make, a package index): make demo, make test.
# ARGS goes to pytest:  make test ARGS='-k reshard'

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# Processes of pytest; `make test WORKERS=0` runs them in one.
WORKERS ?= auto
ARGS ?=

.PHONY: help setup demo test check pages check-pages bench gpu lock client sbom clean

help:  ## This list
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 22

setup: $(READY)  ## Make .venv from requirements.lock, every file checked by its hash

demo: $(READY)  ## Plan GPT-2 on eight devices, run the plan, show it
	@$(VENV)/bin/shardplan demo

test: $(READY)  ## Run the tests
	@$(PY) -m pytest -n $(WORKERS) $(ARGS)

check: $(READY)  ## Format, lint, types, tests
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(PY) -m pytest -n $(WORKERS) $(ARGS)

NODE_READY := web/node_modules/.package-lock.json

pages: $(NODE_READY)  ## Build the report's and the service's page from web/ (needs node >= 20; what is built is committed)
	@npm --prefix web run --silent format
	@npm --prefix web run --silent build

check-pages: $(NODE_READY)  ## Types, lint and format of web/, and whether the committed pages are what it builds
	@npm --prefix web run --silent check

$(NODE_READY): web/package-lock.json
	@npm ci --prefix web --silent --no-audit --no-fund
	@touch $@

bench: $(READY)  ## Run every benchmark; results in benchmarks/results/
	@for script in $$(grep -l '^def main' benchmarks/*.py); do \
	  echo "== $$script"; $(PY) -m "benchmarks.$$(basename "$$script" .py)"; done

gpu: $(READY)  ## Tests that need a GPU, and a plan run on it, measured (install cupy first: pip install '.[cuda12]')
	@$(PY) -c 'import cupy, sys; sys.exit(not cupy.cuda.is_available())' 2>/dev/null \
	  || { echo 'make gpu: no CUDA device, or no cupy for it (extras cuda12, cuda13); nothing was run' >&2; exit 1; }
	@$(PY) -m pytest -m gpu $(ARGS)
	@mkdir -p build
	@$(VENV)/bin/shardplan plan examples/gpt2.json.gz --mesh dp=2,tp=4 --memory-limit 400MB --gap 1e-3 -o build/gpt2.json.gz
	@$(PY) -m planner.gpu build/gpt2.json.gz -o benchmarks/results/gpu.json

COMPILE = CUSTOM_COMPILE_COMMAND='make lock' $(PY) -m piptools compile --quiet --extra service --all-build-deps \
  --generate-hashes --allow-unsafe --strip-extras --resolver backtracking \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

lock: $(READY)  ## Choose versions anew within pyproject.toml: requirements.lock and, for images, deploy/requirements.lock
	@$(PY) -m pip install --quiet 'pip-tools>=7.5,<8'
	@$(COMPILE) --upgrade --extra dev --output-file requirements.lock pyproject.toml
	@$(COMPILE) --constraint requirements.lock --output-file deploy/requirements.lock pyproject.toml

client: $(READY)  ## Generate a typed Python client of the service into build/client
	@$(PY) -m venv build/generator  # the generator wants an older typer than ours
	@build/generator/bin/pip install --quiet --disable-pip-version-check 'openapi-python-client>=0.29,<0.30'
	@$(PY) -m examples.clients.generate build/client

sbom: $(READY)  ## The images' bill of materials (CycloneDX) in build/sbom.json
	@mkdir -p build && $(PY) deploy/sbom.py > build/sbom.json

clean:  ## Remove .venv and every cache
	@rm -rf $(VENV) web/node_modules build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find planner solvers api tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(PY):
	@for python in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$("$$python" --version)"; exec "$$python" -m venv $(VENV); fi; done; \
	echo 'make setup: no Python >= 3.11 found (looked for python3.11 to python3.14, python3, python)' >&2; exit 1

# The build backend is locked too, so that nothing unhashed is fetched for the editable install.
$(READY): requirements.lock pyproject.toml | $(PY)
	@echo 'installing into $(VENV) (about 630 MB on disk, a minute or two)'
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
