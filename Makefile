# make demo | test | lint | fuzz : each installs into .venv first. PY names the Python 3.11 to build it from.
PY ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint clean

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

clean:
	rm -rf .venv demo_out out .npusim_cache
