# Two commands do everything: `make run` and `make test`. Both make the virtual environment first, with the pinned torch.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.PHONY: run test check gpu clean

run: $(INSTALLED)
	$(BIN)/dlbench run

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal  # most tests wait for processes; more workers than two would crowd small machines

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# For a machine with an accelerator and perhaps no network: the Python that is there, from the bare checkout, nothing installed.
gpu:
	$(PYTHON) -m benchmarks.reference

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
