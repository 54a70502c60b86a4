# The two commands of the README are `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
BIN := .venv/bin
# Where the CPU build of torch is found when the configured package index lacks it.
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: demo test check bench golden lock clean

demo: .venv/.runtime-installed
	$(BIN)/evenkeel demo

# Three processes: two cores stay busy while one waits. Tests that share a server stay together
# (tests/conftest.py). Compiled first: with PYTHONDONTWRITEBYTECODE set, each of the hundreds of
# processes that tests start would compile anew.
test: .venv/.dev-installed
	$(BIN)/python -m compileall -q evenkeel $(PARTS)
	$(BIN)/python -m pytest -m "not slow" --numprocesses 3 --dist loadfile --no-loadscope-reorder

check: .venv/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every figure, each by its own script (bench/README.md), then the slow tests.
# eviction and sessions need a recorded trace (--trace).
NO_FIGURE := cache_evidence dashboard_processes dashboard_store report screenshots sse_server ingest_rotel slo_promtool eval_runs eval_kills two_clicks demo_load eviction sessions session_replay session_spans
FIGURES := $(filter-out $(NO_FIGURE:%=bench/%.py), $(wildcard bench/*.py))
bench: .venv/.dev-installed
	mkdir -p build
	for script in $(FIGURES); do $(BIN)/python $$script --json build/$$(basename $$script .py).json || exit 1; done
	$(BIN)/python -m pytest -m slow

golden: .venv/.dev-installed
	$(BIN)/python -m tools.reference
	$(BIN)/python -m pytest tests/unit --rewrite-golden

# The locks name every package, so nothing is resolved and nothing unlocked comes along: vLLM asks
# for torchvision, torchaudio and torchcodec, which on a CPU break the import of text models.
# The root, then each part: distributions of their own, never looked for in an index (--no-deps).
PARTS := runtime collector dashboard evals demo
.venv/.runtime-installed: requirements-cpu.lock pyproject.toml $(PARTS:%=%/pyproject.toml)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "evenkeel needs Python 3.11: make PYTHON=/path/to/python3.11")'
# Made again if it was interrupted, or if ensurepip was missing.
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and ".venv is not Python 3.11: remove it")'
	@echo 'installing into .venv: 4 GB of packages, which takes minutes'
# What the first attempt has to say, the second repeats, if it still holds with the other index.
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-cpu.lock 2>/dev/null \
	|| $(BIN)/python -m pip install --quiet --no-deps -r requirements-cpu.lock --extra-index-url $(TORCH_CPU_INDEX)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . $(PARTS:%=--editable ./%)
	touch $@

.venv/.dev-installed: .venv/.runtime-installed requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-dev.lock
	touch $@

# Resolves pyproject.toml anew; docs/decisions/0002-locks-without-resolution.md says what is left out.
LEFT_OUT := torchvision|torchaudio|torchcodec|triton|nvidia-.*|cuda-.*|evenkeel.*|pip|docker-compose
lock:
	rm -rf build/lock && mkdir -p build && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet 'torch==2.13.0+cpu' \
	|| build/lock/bin/pip install --quiet 'torch==2.13.0+cpu' --extra-index-url $(TORCH_CPU_INDEX)
	build/lock/bin/pip install --quiet hatchling editables . './runtime[cpu,cache]' './collector[embedded,grafana]' ./dashboard ./evals ./demo
	build/lock/bin/pip freeze --all | grep -v -E '^($(LEFT_OUT))( @|==)' > requirements-cpu.lock
	build/lock/bin/pip install --quiet '.[dev]'
	build/lock/bin/pip freeze --all | grep -v -E '^($(LEFT_OUT))( @|==)' | grep -v -x -F -f requirements-cpu.lock > requirements-dev.lock
	echo 'docker-compose==1.29.2' >> requirements-dev.lock
	build/lock/bin/python tools/part_locks.py
	rm -rf build/lock

clean:
	rm -rf .venv build
