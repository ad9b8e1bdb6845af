# make run   set up .venv with the pinned set and open the app on the built-in demo pair
# make test  the same, then lint, types and the whole test suite
# make fuzz  hostile config files, models, chat templates, traces and keys for SECONDS in all (an hour)
# make test-all  make test, then fuzzing for ten minutes with another seed
#
# PYTHON       interpreter that makes the environment (3.11 or newer)
# TORCH_INDEX  a package index to take torch from, e.g. PyTorch's CPU wheels on a machine without a GPU
# ARGS         arguments for the app: make run ARGS="--preset gpt2"
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
ARGS ?=
SECONDS ?= 3600

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

PYTEST = OMP_NUM_THREADS=2 GOMP_SPINCOUNT=20000 $(BIN)/python -m pytest $(PYTEST_ARGS)

SCREEN = tests/terminal tests/tui/app tests/tui/panes tests/tui/inspector

.PHONY: run test test-all test-screen test-rest fuzz lint clean

run: $(VENV)/.run
	@$(BIN)/specdec-tui $(ARGS)

# Two at a time, about equally long: tests of the whole app wait more than they compute, the others compute.
test: $(VENV)/.dev lint
	@$(MAKE) --no-print-directory --jobs=2 test-screen test-rest

test-screen: $(VENV)/.dev
	$(PYTEST) $(SCREEN)

test-rest: $(VENV)/.dev
	$(PYTEST) $(addprefix --ignore=,$(SCREEN))

# One of the kinds after the other, all in the same time.
fuzz: $(VENV)/.dev
	FUZZ_SECONDS=$$(( $(SECONDS) / 5 )) $(PYTEST) -s --timeout 0 tests/fuzz

test-all: test
	@FUZZ_SEED=2 $(MAKE) --no-print-directory fuzz SECONDS=600

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch goes first, alone and under the constraint: asked for by another package it can bring a CUDA build.
$(VENV)/.run: pyproject.toml constraints.txt
	@echo "Installing the pinned set into $(VENV): about 1.3 GB, a few minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --upgrade pip
	$(PIP) install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist
