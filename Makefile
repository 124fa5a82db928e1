# make demo   install into .venv and render the example catalog with the embedded pack
# make demo-rebuild   a roster on a real S3 server: publish, change one text, rebuild, verify
# make test   install, then lint, types and tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt
# One thread a process: the golden waveforms were made so, and Ray's workers run so.
RUN := OMP_NUM_THREADS=1 $(BIN)

.PHONY: demo demo-rebuild test test-slow check bench rebase-goldens clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.installed-asr: $(VENV)/.installed-dev
	$(PIP) --editable '.[dev,asr]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/loudkit-batch render examples/catalog.yaml --out out/demo
	@find out/demo -type f | sort

demo-rebuild: $(VENV)/.installed-dev
	$(RUN)/python -m tests.demo_rebuild

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(RUN)/python -m pytest --numprocesses 2 --dist loadgroup -m "not slow and not gpu"

test-slow: $(VENV)/.installed-asr
	$(RUN)/python -m pytest -m "slow and not gpu"

bench: $(VENV)/.installed-dev
	$(RUN)/python -m tests.benchmarks.run

rebase-goldens: $(VENV)/.installed-dev
	$(RUN)/python -m tests.golden.rebase

clean:
	rm -rf $(VENV) out build *.egg-info
