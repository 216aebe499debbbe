# Every target sets up what it needs in .venv, once; only Python 3.11, pip, make and git must be there.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable

# Where it is set, Python compiles torch anew at every start of a process, and the tests start hundreds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow lint format clean

demo: .venv/core
	$(BIN)/legenda demo

test: .venv/test
	OMP_NUM_THREADS=1 $(BIN)/pytest --quiet --numprocesses 2

test-slow: .venv/test
	OMP_NUM_THREADS=1 $(BIN)/pytest --quiet --numprocesses 2 -m slow

lint: .venv/lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyrefly check

format: .venv/lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build src/*.egg-info

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Legenda needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/core: .venv/made pyproject.toml constraints.txt
	@echo "Installing Legenda into .venv (once, a few minutes at most) ..."
	@$(INSTALL) .
	@touch $@

.venv/test: .venv/core
	@echo "Installing what the tests need ..."
	@$(INSTALL) '.[test]'
	@touch $@

.venv/lint: .venv/test
	@echo "Installing the linter and the type checker ..."
	@$(INSTALL) '.[lint]'
	@touch $@
