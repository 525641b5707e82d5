# `make` alone lists the targets. Each target sets up what it needs; nothing outside .venv and .dedup_platform is touched.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PORT ?= 3000
SPARK_PORT ?= 15002
SEEDS ?= 20
EVENTS ?= 1000000
SOAK ?= dedup_platform_tests/soak
BENCH ?=
MINUTES ?=
WORKERS ?= 2
# So many at a time, each with a Spark of its own, which takes 3 GB of memory. Tests of one file share what they prepare;
# files with the longest come first.
TEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# The first Python that is new enough and can make virtual environments. PYTHON=... chooses another.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c '$(USABLE)' 2>/dev/null && echo "$$python" && break; done)

# Others ask for these with an extra, and pip before 23.3 finds their pin only where it is spelled with it.
PINS_WITH_EXTRAS := gql[requests] uvicorn[standard]

COMPILE := $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock"

.PHONY: help setup java demo test soak histories fuzz test-thorough pictures lint docs dev bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## install into .venv what requirements.lock says (skipped when up to date)

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.13 with venv is needed (Debian: apt-get install python3 python3-venv)" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(READY)

java:
	@test -n "$${JAVA_HOME:-}" || command -v java >/dev/null || \
		{ echo "Java 17 is needed (Debian: apt-get install openjdk-17-jre-headless)" >&2; exit 1; }

demo: setup java ## generate a click stream with known truth, run it, repair a late file, compare
	$(BIN)/dedup-platform demo

test: setup java ## run every test
	$(TEST)

soak: setup java ## kill ingests, repairs and publishers again and again while EVENTS (1000000) events come, for each of SEEDS (20) seeds
	$(BIN)/python -m dedup_platform.testing.servers install kafka
	$(BIN)/python -m pytest $(SOAK) --timeout 3600 --seeds $(SEEDS) --events $(EVENTS)

histories: setup ## live SEEDS (20) random histories of a stream, each judged after every commit
	$(BIN)/python -m dedup_platform_tests.lives --seeds 0..$(SEEDS)

fuzz: setup ## damage files and messages of every format and have them read, until something goes wrong or MINUTES are over
	$(BIN)/python -m dedup_platform_tests.fuzzing --seed $${SEED:-$$(date +%s)} $(if $(MINUTES),--minutes $(MINUTES))

test-thorough: setup java ## run every test, the longest ones in full
	$(TEST) --thorough --timeout 3600

pictures: setup java ## take the pictures of docs/pictures, of Dagster's UI in a browser
	PICTURES=$(CURDIR)/docs/pictures $(BIN)/python -m pytest --thorough --timeout 3600 \
		dedup_platform_tests/end_to_end/test_dagster_dev.py::test_a_day_with_dagster_dev

lint: setup ## check style, formatting, types, import boundaries and the links of docs/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/mkdocs build --strict --quiet

docs: setup ## build the pages of docs/ as a site in build/docs; a link that leads nowhere is an error
	$(BIN)/mkdocs build --strict

dev: setup java ## open Dagster's UI (port 3000) and a warm Spark for DEDUP_PLATFORM_STREAMS
	exec $(BIN)/python -m dedup_platform.dev --port $(PORT) --spark-port $(SPARK_PORT)

bench: setup java ## measure speed and memory beside other engines (BENCH="..." are its options, see docs/benchmarks.md)
	$(BIN)/python -m benchmarks $(BENCH)

lock: setup ## renew requirements.lock from pyproject.toml, and of it what it takes to run but not to test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --extra dev --extra bench --extra lineage pyproject.toml -o requirements.lock
	$(COMPILE) --constraint requirements.lock pyproject.toml -o requirements-run.lock
	@for lock in requirements.lock requirements-run.lock; do for pin in $(PINS_WITH_EXTRAS); do \
		pinned=$$(sed -n "/^$${pin%%[*}==/,/^    # via/p" $$lock | \
			sed -e '/^    # via/d' -e "s/^$${pin%%[*}==/$${pin%%]*}]==/"); \
		[ -z "$$pinned" ] || echo "$$pinned" >> $$lock; done; done

clean: ## remove .venv and caches; data in .dedup_platform stays
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build *.egg-info
