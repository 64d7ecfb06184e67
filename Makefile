VENV := .venv
PYTHON ?= python3

.PHONY: run test clean

run: $(VENV)/.installed
	$(VENV)/bin/kvspill quick

test: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/pytest -n 2 -m "not real"
	# What uses the real clock, disk and signals may be disturbed by whatever else the machine does.
	$(VENV)/bin/pytest -n 2 -m real --reruns 2

clean:
	rm -rf $(VENV) build src/kvspill.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml src/kvspill/storage/_fastio.c | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --editable '.[report]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml src/kvspill/storage/_fastio.c | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed
