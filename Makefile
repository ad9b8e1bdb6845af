# make run   set up .venv with the pinned set and open the app on the built-in demo pair
# make test  the same, then lint, types and the whole test suite
# make test-all  what `make test` leaves out: the large matrices, and hostile inputs for a minute of each kind
# make fuzz  hostile config files, models, their configs, chat templates, traces and keys for SECONDS in all (an hour)
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

# Threads of a process: several of them run side by side.
THREADS = 1
PYTEST = OMP_NUM_THREADS=$(THREADS) GOMP_SPINCOUNT=20000 $(BIN)/python -m pytest --durations 15 --durations-min 5 $(PYTEST_ARGS)

TERMINAL = $(addprefix tests/,terminal fuzz/test_fuzz_keys.py tools decoding benchmark doors tui/commands tui/inspector \
	tui/screens)
SCREEN = tests/tui/app tests/tui/panes

.PHONY: run test test-all test-terminal test-screen test-rest fuzz lint clean

run: $(VENV)/.run
	@$(BIN)/specdec-tui $(ARGS)

# Three parts at a time, about equally long: tests of the whole app wait about as much as they compute, so that two
# cores are busy. Their output mixes, so what failed is told again at the end.
PARTS = test-terminal test-screen test-rest

test: $(VENV)/.dev lint
	@$(MAKE) --no-print-directory --jobs=3 --keep-going $(PARTS) || \
		{ echo; grep -hE '$(TOLD)' $(PARTS:%=build/%.log); exit 1; }

TOLD = ^(FAILED|ERROR) |^[0-9]+ snapshots? unused|^=+ .* in [0-9.]+s|^test-[a-z]+ ended with status

# Runs tests as a part of them. A pipe has the status of its end: the log's last line holds that of its beginning.
define part
	@mkdir -p build
	@{ $(PYTEST) $(1) 2>&1; echo "$@ ended with status $$?"; } | tee build/$@.log
	@tail -n 1 build/$@.log | grep -q ' 0$$'
endef

test-terminal: $(VENV)/.dev
	$(call part,$(TERMINAL))

test-screen: $(VENV)/.dev
	$(call part,$(SCREEN))

test-rest: $(VENV)/.dev
	$(call part,$(addprefix --ignore=,$(TERMINAL) $(SCREEN)))

test-all: THREADS = 2
test-all: $(VENV)/.dev
	$(PYTEST) -m large
	$(PYTEST) tests/backends/test_lean_model.py tests/backends/test_kernel_cache.py tests/backends/test_causal_lm.py
	@FUZZ_SEED=2 $(MAKE) --no-print-directory fuzz SECONDS=300

# One of the kinds after the other, all in the same time.
fuzz: $(VENV)/.dev
	FUZZ_SECONDS=$$(( $(SECONDS) / 6 )) $(PYTEST) -s --timeout 0 tests/fuzz/test_fuzz_*.py

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
