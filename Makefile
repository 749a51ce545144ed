# Two commands do everything: `make run` and `make test`. Both make the virtual environment first, with the pinned torch.
PYTHON ?= python3
# Of the machine that `make wheels` is for, and what it lacks.
FOR_PYTHON ?= 3.12
FOR_PLATFORM ?= manylinux2014_x86_64
WHEELS ?= msgspec nvidia-ml-py pillow
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
FLOORS = $(VENV)-floors
NETWORKS = $(VENV)-networks
# File by file, as the tests of one share runs, and in the order of tests/conftest.py.
PYTEST = $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Of what pip says, the packages of a megabyte or more, which are what takes long.
LARGE = s/^ *(Downloading|Using cached) ([^ ]*) \(([0-9.]* [MG]B)\)$$/\1 \2, \3/p
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)

# Where the checkout can't be written, what Python and the tools keep between runs is in the virtual environment: make test VENV=/tmp/venv
WRITABLE := $(shell test -w . && echo yes)
ifeq ($(WRITABLE),)
KEPT = $(abspath $(VENV))/kept
export PYTHONPYCACHEPREFIX = $(KEPT)/bytecode
export HYPOTHESIS_STORAGE_DIRECTORY = $(KEPT)/hypothesis
export MYPY_CACHE_DIR = $(KEPT)/mypy
export RUFF_CACHE_DIR = $(KEPT)/ruff
PYTEST += --override-ini 'cache_dir=$(KEPT)/pytest'
endif

.PHONY: run test test-real test-all floors check docs references drift networks wheels gpu gpu-check clean

run: $(INSTALLED)
	$(BIN)/dlbench run

# Where Python is told to write no bytecode, each of the processes would compile dlbench, and pytest all tests, again.
test test-real test-all: export PYTHONDONTWRITEBYTECODE =
# The project's files and what programs print to its tests are in UTF-8, in any locale.
test test-real test-all: export PYTHONUTF8 = 1

# What a change needs to know. Most tests wait for processes; more workers than two would crowd small machines.
test: $(INSTALLED)
	$(PYTEST) -m "not real"

# Signals, memory, deadlines, ranks, searches and whole scripts, in real processes of seconds each.
test-real: $(INSTALLED)
	$(PYTEST) -m real

test-all: $(INSTALLED)
	$(PYTEST)

# Every dependency at the oldest version that pyproject.toml allows, but torch, unless told: make floors TORCH=2.6.0
floors:
	$(PYTHON) -m venv --clear $(FLOORS)
	$(FLOORS)/bin/python -m pip install --quiet --constraint floors.txt torch==$(TORCH) pytest hypothesis --editable '.[parquet,report,pictures]'
	$(FLOORS)/bin/python -m pytest -m "exact or snapshot" tests/core tests/analysis tests/harness tests/workloads/test_preprocess.py

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages of docs/reference, from what the program says of itself, and what other pages show of results/reference.
docs: $(INSTALLED)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/from_results.py

# For a machine with an accelerator and perhaps no network: the Python that is there, from the bare checkout, nothing installed.
gpu: export PYTHONPATH = wheels
gpu:
	$(PYTHON) -m benchmarks.reference

# The CPU of this machine, which does nothing else meanwhile: four rounds of each suite, then seven; what is left with the next call.
references: $(INSTALLED)
	$(BIN)/python -m benchmarks.reference --device cpu --budget 45m

# One occasion more of how identical code drifts, in three minutes, and what all of them say: for cron, every two hours, for days.
drift: $(INSTALLED)
	$(BIN)/dlbench calibrate quick --device cpu
	$(BIN)/python -m benchmarks.drift

# Networks as users bring them, three of them from transformers, in an environment of their own: docs/reference/networks.md.
networks:
	test -x $(NETWORKS)/bin/python || $(PYTHON) -m venv $(NETWORKS)
	$(NETWORKS)/bin/python -m pip install --quiet --constraint constraints.txt --editable . transformers
	$(NETWORKS)/bin/python -m benchmarks.networks

# As `gpu`: what only a card can show, a step after the other.
gpu-check: export PYTHONPATH = wheels
gpu-check:
	$(PYTHON) -m benchmarks.gpu_check

# What a machine with torch and little else lacks, for its Python and its system and not for those here: carry the folder there.
wheels:
	rm -rf wheels
	$(PYTHON) -m pip install --quiet --target wheels --only-binary :all: --no-deps \
		--python-version $(FOR_PYTHON) --platform $(FOR_PLATFORM) --constraint constraints.txt $(WHEELS)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@rm -f $@
	@echo 'installing torch $(TORCH), and what dlbench and its tests need, into $(VENV):'
	@{ $(BIN)/python -m pip install --progress-bar off --constraint constraints.txt --editable '.[dev]' && touch $@; } | sed -nE '$(LARGE)'
	@test -e $@

clean:
	rm -rf $(VENV) $(FLOORS) $(NETWORKS) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
