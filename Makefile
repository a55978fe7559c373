# Everything that is done in this repository starts here; `make` alone lists it.
# GNU make. Needs Python 3.11 or newer; the rest is made in .venv.

# The Python that .venv is made with (empty: the newest one found).
PYTHON ?=
# One molecule scenario, benchmark or drill, where a target takes a NAME.
NAME ?=

VENV := .venv
READY := $(VENV)/.ready
LINK := .ansible/collections/ansible_collections/tether/fleet
PY := $(VENV)/bin/python
RUN := $(PY) tests/run
DEMO := python3 tests/testbed --bed demo

# Programs of .venv first: ansible-playbook, molecule and their helpers find one another by name.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHON NAME

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-down test test-all lint unit sanity packaging integration molecule bench drills pages docs build pins clean clean-cache

help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

venv: $(READY) $(LINK) ## The virtual environment in .venv, from pinned requirements

# Made anew, not patched, when the requirements change: so it never holds more than they say.
$(READY): requirements-dev.txt
	@sh tests/run/setup.sh venv

$(LINK):
	@sh tests/run/setup.sh link

demo: ## A whole fleet on this machine: hosts, cluster, models; then a chat through a Service
	@sh tests/run/setup.sh bed demo
	@$(MAKE) --no-print-directory venv
	$(DEMO) up
	@sh tests/models/prepare.sh demo $(PY)
	@ansible-playbook -i inventories/demo playbooks/site.yml || \
	  { echo 'If these machines were used before: make demo-down, then make demo.' >&2; exit 1; }
	@$(PY) tests/demo/show.py

demo-down: ## The demo away again; .venv (make clean) and builds (make clean-cache) stay
	$(DEMO) down

test: venv ## Everything that checks the project; NAME=default runs one molecule scenario alone
	@$(RUN) $(if $(NAME),molecule)

test-all: venv ## What test runs, and the unit tests under the oldest versions claimed
	@$(RUN) all

lint: venv ## Style, types, documentation: ruff, mypy, yamllint, ansible-lint, antsibull-docs
	@$(RUN) ruff format yamllint changelog docs ansible-lint mypy

unit: venv ## Unit tests
	@$(RUN) action unit

sanity: venv ## The archive, and ansible-test sanity on it
	@$(RUN) archive sanity

packaging: venv ## The oldest versions claimed; the archive alone, in empty environments, on a bed
	@$(RUN) oldest installed

integration: venv ## Tests against real parts
	@$(RUN) programs integration

molecule: venv ## The molecule scenarios; NAME=default runs one alone
	@$(RUN) molecule

bench: venv ## Benchmarks; NAME=converge runs one alone
	@$(RUN) bench

drills: venv ## Long drills; NAME=killed runs one alone
	@$(RUN) drills

pages: venv ## The generated parts of docs/*.md, anew from the code
	@$(PY) tests/docs pages

docs: venv ## The site: guides, and a page for every module and role, in build/docs/html
	@$(PY) tests/docs site build/docs

build: venv ## The collection's archive, in build
	@ansible-galaxy collection build --force --output-path build

pins: venv ## requirements*.txt anew from requirements*.in, at today's versions
	@for name in requirements requirements-dev; do \
	  pip-compile --quiet --upgrade --strip-extras --allow-unsafe --no-emit-options --no-header \
	    --annotation-style line --output-file $$name.txt $$name.in || exit; \
	done

clean: ## What was built here: .venv, caches of tools, archives
	rm -rf $(VENV) .ansible .cache build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-cache: ## What is kept in the user's cache folder: the bed's builds (a quarter of an hour), tools
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/tether-bed" "$${XDG_CACHE_HOME:-$$HOME/.cache}/tether-fleet"
