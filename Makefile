# Two commands: `make dev` runs the whole system, `make test` proves it. Both make .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV_VERSION := 0.13.7
# Broken links are warnings. --quiet would drop them before --strict counts them.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: help install dev test test-bounds coverage fuzz chaos chaos-bugs bench bench-smoke paths lint check format docs lock clean

help: ## show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

install: $(STAMP) ## make .venv with everything the other targets use

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Hetuflow needs Python 3.11 or newer: set PYTHON=/path/to/python3.11 and run make again." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "This Python cannot make virtual environments: on Debian run 'apt install python3-venv make' and try again." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) 2>/dev/null || \
		echo "uv is not to be had here; installing with pip (slower)."
	@if [ -x $(BIN)/uv ]; then \
		VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r requirements.lock && \
		VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e . ; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . ; \
	fi
	@touch $(STAMP)

dev: install ## run embedded PostgreSQL, one server and one agent; Ctrl-C stops all
	@exec $(BIN)/hetuflow dev $(ARGS)

test: install ## run all tests on a throw-away PostgreSQL
	@$(BIN)/pytest $(ARGS)

test-bounds: install ## run the tests of HTTP with the lowest and the highest allowed libraries (ARGS="--only lowest tests/unit")
	@$(BIN)/python -m tests.bounds $(ARGS)

coverage: install ## run all tests and tell which branches none of them took (twice the time)
	@$(BIN)/pytest --cov --cov-report=term $(ARGS)

fuzz: install ## ask a server whatever its OpenAPI document allows and forbids (ARGS="--examples 1000")
	@$(BIN)/python -m tests.fuzz $(ARGS)

chaos: install ## torment a system with every fault, seed after seed (ARGS="--runs 10 --report DIR")
	@$(BIN)/hetuflow selftest --runs 5 --report chaos-reports $(ARGS)

chaos-bugs: install ## put bugs into servers on purpose, and see that the self-test finds each of them
	@$(BIN)/python -m tests.chaos $(ARGS)

bench: install ## measure rates and latencies beside their limits, in one run
	@$(BIN)/python -m bench $(ARGS)

bench-smoke: install ## see that every figure of the benchmark works, in minutes; measures nothing
	@$(BIN)/python -m bench --smoke $(ARGS)

paths: install ## measure which files the main paths execute and write docs/design/paths.md (minutes)
	@$(BIN)/python -m tools.paths $(ARGS)

lint: install ## formats, lint, types, import rules, docs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@output=$$($(MKDOCS) 2>&1) || { echo "$$output" >&2; exit 1; }

check: lint test ## the gate: lint, then test

format: install ## write formats and safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: install ## build the documentation into site/
	@$(MKDOCS)

lock: ## resolve requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
		--no-emit-package hetuflow --extra dev --custom-compile-command 'make lock' pyproject.toml -o requirements.lock

clean: ## remove .venv and caches (not the dev data in .hetuflow)
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage* htmlcov
