# Every target creates the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := .venv-oldest
WORKERS ?= 2

.PHONY: demo test test-slow test-attack test-kill-ranks test-kill-search test-oldest check docs format clean

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

# In parallel, with one thread for each process that a test starts. worksteal keeps neighbouring tests, which share
# fixtures, in one process as far as possible.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n $(WORKERS) --dist worksteal

# Sequentially: these tests kill processes at chosen moments and start several themselves.
test-slow: $(READY)
	$(BIN)/pytest -m slow --timeout 1800

# Kills, damaged files and fuzzed losses, in one process: docs/reliability.md.
test-attack: $(READY)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m attack --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0)

test-kill-ranks: $(READY)
	REWEIGH_RANK_KILLS=$(or $(KILLS),200) $(BIN)/pytest tests/lab/train/test_supervisor.py --timeout 86400

test-kill-search: $(READY)
	REWEIGH_SEARCH_KILL="8 1000 30" $(BIN)/pytest tests/lab/search/test_kill.py --timeout 86400

# Not part of CI: the oldest supported torch includes CUDA (gigabytes). Warnings of old packages are ignored.
$(OLDEST)/.ready: pyproject.toml oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c oldest.txt expecttest hypothesis mpmath \
		"psycopg[binary]" pytest pytest-timeout pytest-xdist scipy torchmetrics \
		-e ".[lab,plot,tables,text,tensorboard,search,kernels,docs]"
	@touch $@

test-oldest: $(OLDEST)/.ready
	OMP_NUM_THREADS=1 PYTEST_ADDOPTS="-W default" $(OLDEST)/bin/pytest -m "not slow" -n $(WORKERS) --dist worksteal

docs: $(READY)
	PYTHONPATH=. $(BIN)/python tools/doc_figures.py docs/figures
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --strict --quiet

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(OLDEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
