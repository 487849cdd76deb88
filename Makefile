# Two commands set everything up in .venv and do the work:
#
#   make train    train on MNIST, the main job
#   make test     run the tests
#
# PYTHON=... names another interpreter (3.11 to 3.13), ARGS=... adds arguments.

FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(FITS)' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: train test lint types imports docs check lock clean

train: $(VENV)/.installed
	$(BIN)/purefit train mnist $(ARGS)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --quiet -n 2 --dist loadfile $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: lint types imports docs test

# The versions that the tests run with; needs uv.
lock:
	uv pip compile pyproject.toml --extra dev --universal --no-annotate --no-header \
		--python-version 3.11 --output-file requirements-lock.txt

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Expected Python 3.11, 3.12 or 3.13, got none; \
	install one or name it with PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing purefit and what it needs into $(VENV) ..."
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml requirements-lock.txt | $(VENV)/bin/python
	@echo "Installing purefit and the test tools into $(VENV) ..."
	$(PIP) --requirement requirements-lock.txt
	$(PIP) --no-deps --editable .
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
