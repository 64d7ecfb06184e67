VENV := .venv
PYTHON ?= python3
# Tests start Python hundreds of times: compiled once, it starts in half the time.
unexport PYTHONDONTWRITEBYTECODE
# Each worker takes whole runs of neighbouring tests, so that what a file's tests share is made once.
PYTEST := $(VENV)/bin/pytest -n 2 --dist worksteal

.PHONY: run test test-all clean

run: $(VENV)/.installed
	$(VENV)/bin/kvspill quick

test: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTEST) -m "not real and not slow"
	# What uses the real clock, disk and signals may be disturbed by other load on the machine.
	$(PYTEST) -m "real and not slow" --reruns 2 --rerun-show-tracebacks

# The same and what takes longer: tests marked slow, and every cell of the tables in docs/reliability.md.
test-all: test
	$(PYTEST) -m slow --reruns 2 --rerun-show-tracebacks
	$(VENV)/bin/python tests/sim/sweep.py 0:1000
	$(VENV)/bin/python tests/real/faulting.py .
	$(VENV)/bin/python tests/real/faulting.py . --share 0.3
	$(VENV)/bin/python tests/real/crashing.py 50
	$(VENV)/bin/python tests/real/killing.py 100
	$(VENV)/bin/python tests/real/corrupting.py 300

clean:
	rm -rf $(VENV) build src/kvspill.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(wildcard src/kvspill/*/*.c) | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --editable '.[report]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(wildcard src/kvspill/*/*.c) | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed
