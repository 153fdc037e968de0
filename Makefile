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

# The CPU's part of docs/data; MINDSPEED_SRC names a checkout for the upstream columns. GPU files come from bench by hand.
docs-data: $(READY)
	$(BIN)/python -m docs.numerics
	$(BIN)/python -m docs.traps
	$(BIN)/python -m docs.ascend_runs
	$(BIN)/python -m npusim resources --op fused --json > docs/data/resources.tmp && mv docs/data/resources.tmp docs/data/resources.json
	$(BIN)/python -m npusim report --json $(if $(MINDSPEED_SRC),--mindspeed-src $(MINDSPEED_SRC)) > docs/data/npusim.tmp && mv docs/data/npusim.tmp docs/data/npusim_910b2_bf16.json

docs-figures: $(READY)
	$(BIN)/python -m docs.figures

clean:
	rm -rf .venv demo_out out atk_output .npusim_cache
