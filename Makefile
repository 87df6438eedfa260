# Everything a fresh machine needs is Python 3.11 or newer, make and git.
# "make help" lists the targets; PYTHON=... names the interpreter for .venv.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# pip must not run twice at once in one environment.
.NOTPARALLEL:
SHELL := /bin/sh

BIN := .venv/bin
# pip tells about itself, and about the settings of the machine, only what is an error.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url
# Tests run in as many processes as there are processors.
JOBS ?= logical

# A version manager may put a python3.13 on PATH that does not run, and Debian a
# python3 that cannot make environments: so each one is asked for what is needed.
define FIND_PYTHON
for name in $(if $(PYTHON),'$(PYTHON)',python3.13 python3.12 python3.11 python3); do \
	if "$$name" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
		2>/dev/null; then python=$$name; break; fi; \
done; \
if [ -z "$$python" ]; then \
	echo 'make: no usable Python 3.11 or newer$(if $(PYTHON), at $(PYTHON)): install it with its venv module (on Debian: python3 and python3-venv), or say PYTHON=/path/to/python' >&2; \
	exit 1; \
fi
endef

##@ Use

.PHONY: demo
demo: .venv/.stamps/runtime ## audit the example site and deliver the mail; SITE=folder-or-URL audits your own
	@$(BIN)/python -m examples.website_audit.demo

.PHONY: wheel
wheel: .venv/.stamps/development ## build the wheel into dist/
	$(BIN)/python -m hatchling build -t wheel

##@ Verify

.PHONY: test
test: .venv/.stamps/development ## run all tests, on SQLite and PostgreSQL; ARGS=... goes to pytest
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

.PHONY: check
check: check-format check-lint check-types check-imports check-docs ## run every check below

.PHONY: check-format
check-format: .venv/.stamps/development ## is everything formatted
	$(BIN)/ruff format --check

.PHONY: check-lint
check-lint: .venv/.stamps/development ## ruff's rules; each exception is explained in pyproject.toml
	$(BIN)/ruff check

.PHONY: check-types
check-types: .venv/.stamps/development ## mypy, strict, tests included
	$(BIN)/mypy

.PHONY: check-imports
check-imports: .venv/.stamps/development ## who may import whom (.importlinter)
	$(BIN)/lint-imports

.PHONY: check-docs
check-docs: .venv/.stamps/development ## links, code blocks and named commands in the documentation
	$(BIN)/python -m tests.surface.docs_check

.PHONY: matrix
matrix: .venv/.stamps/development ## unit, property and conformance tests on every Python and SQLAlchemy supported
	@UV=$(BIN)/uv JOBS=$(JOBS) sh tests/matrix.sh $(ARGS)

.PHONY: mutate
mutate: .venv/.stamps/development ## take every guard out and see its test fail; ARGS=... chooses guards
	$(BIN)/python -m tests.mutation $(ARGS)

.PHONY: explore
explore: .venv/.stamps/development ## walk the state space at full depth; ARGS=... goes to the explorer
	$(BIN)/python -m tests.explorer $(ARGS)

.PHONY: failure-table
failure-table: .venv/.stamps/development ## crash at every boundary and write docs/explanation/failure-table.md
	$(BIN)/python -m tests.acceptance.failure_table

##@ Maintain

.PHONY: format
format: .venv/.stamps/development ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format --quiet

.PHONY: lock
lock: .venv/.stamps/development ## pin the dependencies anew; UPGRADE=1 takes the newest versions
	$(LOCK) $(if $(UPGRADE),--upgrade) --extra postgres --extra web pyproject.toml -o requirements.lock
	$(LOCK) $(if $(UPGRADE),--upgrade) --group build -o requirements-build.lock
	$(LOCK) $(if $(UPGRADE),--upgrade) --extra postgres --extra web --group dev -c requirements.lock \
		-c requirements-build.lock pyproject.toml -o requirements-dev.lock
	echo 'sqlalchemy==2.0.40' | $(LOCK) --no-deps --no-annotate - -o requirements-lowest.lock

.PHONY: clean
clean: ## remove environments, caches and built files; var/ with its mails stays
	rm -rf .venv .matrix build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The environment. A stamp is as old as what it stands for, so nothing is installed twice.
# pip and the locked packages come first; postroom itself is then installed as a link to this folder.

.venv/.stamps/created:
	@$(FIND_PYTHON); \
	if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Making .venv with $$($$python --version)"; \
		"$$python" -m venv --clear .venv; \
	fi
	@mkdir -p $(@D) && touch $@

.venv/.stamps/runtime-packages: requirements.lock requirements-build.lock | .venv/.stamps/created
	@echo 'Installing what postroom needs to run'
	@$(PIP) install --require-hashes -r requirements.lock -r requirements-build.lock
	@touch $@

.venv/.stamps/development-packages: requirements-dev.lock | .venv/.stamps/created
	@echo 'Installing what postroom needs to be tested'
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

# The development packages are a superset: with them, the first list has nothing to add.
.venv/.stamps/runtime: .venv/.stamps/runtime-packages pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.stamps/development: .venv/.stamps/development-packages .venv/.stamps/runtime
	@touch $@
