PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: demo test check format readme clean

## set everything up and reproduce the paper's first table at a small size
demo: $(READY)
	rm -rf runs/demo
	$(BIN)/darkbayes reproduce toy2d --preset quick --out runs/demo

## set everything up and run the tests, doctests included
test: $(READY)
	$(BIN)/pytest -n 2 --dist loadfile tests src

## format, lint, types, layers
check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## fill the tables of the README and of docs/ from results/
readme: $(READY)
	$(BIN)/python scripts/readme.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) runs build .pytest_cache .ruff_cache .hypothesis
