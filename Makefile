PYTHON ?= python3
# What may be installed; another file tries other versions.
CONSTRAINTS ?= constraints.txt
# What is to be installed.
PACKAGES ?= -e '.[dev]'
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

DOCS := $(VENV)/.docs

.PHONY: install demo docs test check format readme mutants clean

## set everything up: the command line with all its extras in .venv
install: $(READY)
	@echo "ready: $(BIN)/darkbayes fit my.csv --target COLUMN   (or: . $(BIN)/activate)"

## set everything up and do the main job on a table that ships: fit, scores, report
demo: $(READY)
	rm -rf runs/demo
	$(BIN)/darkbayes data get boston --out runs/demo
	$(BIN)/darkbayes fit runs/demo/boston.csv --target MEDV --out runs/demo/boston

## set everything up and build the documentation; begin at site/index.html
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

## set everything up and run the tests, doctests included
# The flags let XLA compile faster: by its older emitters, each program in one piece, with few optimisations. The other
# variable lets scikit-learn check arrays of any library.
test: $(READY)
	XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 --xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true" SCIPY_ARRAY_API=1 $(BIN)/pytest -n 2 --dist worksteal tests src

## format, lint, types, layers, docstrings, the image of the service
check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/docstrings.py
	$(BIN)/python scripts/lint_dockerfile.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## fill the tables of the README and of docs/ from results/, and the help of the commands; make the notebooks
readme: $(READY)
	$(BIN)/python scripts/readme.py
	$(BIN)/python scripts/notebooks.py

## break the core a little, again and again, and see whether the tests notice: half an hour, and it goes on where it stopped
mutants: $(READY)
	XLA_FLAGS=--xla_cpu_use_fusion_emitters=false SCIPY_ARRAY_API=1 $(BIN)/python scripts/mutants.py

$(READY): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) $(PACKAGES)
	touch $(READY)

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[docs]'
	touch $(DOCS)

clean:
	rm -rf $(VENV) runs site build .pytest_cache .ruff_cache .hypothesis
