# Every target sets up what it needs in VENV, once; only Python 3.11 or newer, pip, make and git must be there.
# CPU=1 installs PyTorch without CUDA, which is smaller by more than 4 GB.
# A second interpreter takes a folder of its own: make test PYTHON=python3.13 VENV=.venv-3.13
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CPU ?=
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt \
  $(if $(CPU),--extra-index-url https://download.pytorch.org/whl/cpu) --editable
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --quiet --numprocesses 2 --dist worksteal

# Where it is set, Python compiles torch anew at every start of a process, and the tests start hundreds.
export PYTHONDONTWRITEBYTECODE :=

MINUTES ?= 10
SEED ?=

.PHONY: demo test test-all fuzz lint format docs release-check clean

demo: $(VENV)/core
	$(BIN)/legenda demo

test: $(VENV)/test
	$(PYTEST)

test-all: $(VENV)/test
	$(PYTEST) -m ''

# Damaged files and requests for MINUTES=10, from a new seed, which is printed, or SEED=7.
fuzz: $(VENV)/fuzz
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/server.py $(if $(SEED),--seed $(SEED))

lint: $(VENV)/lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python
	if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint Dockerfile; fi

format: $(VENV)/lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html"

# Builds wheel and source distribution, installs the wheel into an empty environment, and runs the examples there.
release-check: $(VENV)/core
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt packaging setuptools
	$(BIN)/python .ci/release_check.py

clean:
	rm -rf $(VENV) build src/*.egg-info

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Legenda needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/core: $(VENV)/made pyproject.toml constraints.txt
	@echo "Installing Legenda into $(VENV) (once, a few minutes at most) ..."
	@$(INSTALL) '.[torch]'
	@touch $@

$(VENV)/test: $(VENV)/core
	@echo "Installing what the tests need ..."
	@$(INSTALL) '.[test]'
	@touch $@

$(VENV)/fuzz: $(VENV)/test
	@echo "Installing what fuzzes the server ..."
	@$(INSTALL) '.[fuzz]'
	@touch $@

$(VENV)/lint: $(VENV)/test
	@echo "Installing the linter and the type checker ..."
	@$(INSTALL) '.[lint]'
	@touch $@

$(VENV)/docs: $(VENV)/core
	@echo "Installing what the documentation needs ..."
	@$(INSTALL) '.[docs]'
	@touch $@
