# Everything a developer runs. Needs make, Python 3.11 or later and, for the tests, Debian's servers (installed when root).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 4
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without compiled files each of the hundreds of processes that the tests start compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo servers test soak check format lint bench bench-tasks bench-flows bench-points bench-history bench-rules mutants mutants-map clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install tradewind with its development tools

$(STAMP): pyproject.toml scripts/venv.sh
	@scripts/venv.sh $(VENV)
	@touch $@

demo: $(STAMP) ## start a station, show it working, print its address; DEMO_SECONDS=n ends it by itself
	@$(BIN)/tradewind demo $(ARGS)

servers: ## install the servers that the tests start (Debian, as root), or say which are missing
	@scripts/servers.sh

test: $(STAMP) servers ## run all tests; ARGS="-k name" narrows, JOBS=n sets the processes
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

soak: $(STAMP) servers ## the same tests with SOAK=5 times the examples, kills and rounds, for hours that nobody waits
	@SOAK=$${SOAK:-5} $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --timeout 1800 $(ARGS)

lint: $(STAMP) ## formatting, lint, types, import directions
	@$(BIN)/ruff format --check src tests bench scripts
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint test ## everything that must hold before a commit

format: $(STAMP) ## rewrite the code in the house format
	@$(BIN)/ruff format src tests bench scripts
	@$(BIN)/ruff check --fix .

bench: bench-tasks bench-flows bench-points bench-history bench-rules ## all benchmarks

bench-tasks: $(STAMP) ## tasks against other task queues, each in an environment of its own
	@scripts/servers.sh redis-server
	@PYTHON=$(BIN)/python sh bench/setup_peers.sh .bench-venvs
	@$(BIN)/python bench/tasks/run.py $(ARGS)

bench-flows: $(STAMP) ## flows against other flow engines, each in an environment of its own
	@scripts/servers.sh redis-server rabbitmq-server
	@PYTHON=$(BIN)/python sh bench/flows/setup_peers.sh .bench-venvs
	@$(BIN)/python bench/flows/run.py $(ARGS)

bench-points: $(STAMP) ## points, models, ingest and Modbus against their ceilings
	@scripts/servers.sh redis-server
	@$(BIN)/python bench/points/run.py $(ARGS)

bench-rules: $(STAMP) ## rules and alarms, and other rule engines, each in an environment of its own
	@scripts/servers.sh redis-server
	@PYTHON=$(BIN)/python sh bench/rules/setup_peers.sh .bench-venvs
	@$(BIN)/python bench/rules/run.py $(ARGS)

bench-history: $(STAMP) ## history: both sinks, end to end, trends, against clients of InfluxDB
	@scripts/servers.sh redis-server influxdb
	@PYTHON=$(BIN)/python sh bench/history/setup_peers.sh .bench-venvs
	@$(BIN)/python bench/history/run.py $(ARGS)

mutants-map: $(STAMP) servers ## record which test runs which line; mutants needs it, again after larger changes
	@$(BIN)/python scripts/mutants/run.py --map --jobs $(JOBS)

mutants: $(STAMP) servers ## a sample of small mistakes, which of them the tests notice; ARGS="'*/rules/*' --per-file 5"
	@$(BIN)/python scripts/mutants/run.py $(ARGS)

clean: ## remove what these targets made; a station's data stays
	@rm -rf $(VENV) .bench-venvs .mutants build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
