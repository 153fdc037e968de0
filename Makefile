# make demo | test | lint | fuzz : each installs into .venv first. PY names the Python 3.11 to build it from.
PY ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint fuzz docs-data docs-figures clean

$(READY): requirements-dev.txt requirements.txt setup.py
	$(PY) -m venv .venv
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps -e .
	touch $@

demo: $(READY)
	$(BIN)/python -m mindspeed_kkt_plugin.demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 ut

lint: $(READY)
	$(BIN)/ruff check .

# Draws calls and compares them with float64 forward substitution; FUZZ_SECONDS and FUZZ_SEED as in ut/hostile/fuzz.py.
fuzz: $(READY)
	$(BIN)/python -m ut.hostile.fuzz

# The CPU's part of docs/data (numerics, compiler traps, estimates); device files come from bench and npusim by hand.
docs-data: $(READY)
	$(BIN)/python -m docs.numerics
	$(BIN)/python -m docs.traps
	$(BIN)/python -m npusim report --json > docs/data/npusim.tmp && mv docs/data/npusim.tmp docs/data/npusim_910b2_bf16.json

docs-figures: $(READY)
	$(BIN)/python -m docs.figures

clean:
	rm -rf .venv demo_out out .npusim_cache
