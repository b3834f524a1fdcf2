# Every target does its own set-up; `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-kill test-kill-ranks test-kill-search check docs format clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(READY)
	$(BIN)/reweigh demo

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/pytest -m "not slow"

test-slow: $(READY)
	$(BIN)/pytest -m slow --timeout 1800

test-kill: $(READY)
	REWEIGH_KILLS=$(or $(KILLS),1000) $(BIN)/pytest tests/run/test_kill.py --timeout 86400

test-kill-ranks: $(READY)
	REWEIGH_RANK_KILLS=$(or $(KILLS),200) $(BIN)/pytest tests/train/test_supervisor.py --timeout 86400

test-kill-search: $(READY)
	REWEIGH_SEARCH_KILL="8 1000 30" $(BIN)/pytest tests/search/test_kill.py --timeout 86400

docs: $(READY)
	$(BIN)/python tools/doc_figures.py docs/figures
	$(BIN)/python tools/build_docs.py site

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
