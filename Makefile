# Two commands are all a newcomer needs: `make quickstart` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test check clean

quickstart: .venv/installed
	$(BIN)/python -m raystitch.sweep configs/quickstart.yaml

test: check
	$(BIN)/pytest -n 2 --dist loadgroup

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "raystitch needs Python >= 3.10"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/installed-dev: .venv/installed pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv runs
