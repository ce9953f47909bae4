# Everything sets itself up in .venv: a machine with Python and make is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
DOCS   := .venv-docs
# What is compiled is kept, whatever the machine says: collecting tests takes half the time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo check test test-studio slow fuzz soak style types docs format lock bench clean

demo: $(STAMP)  ## the main job, with no data of your own
	$(BIN)/earatlas demo

# A file goes to one worker, so that what its tests share is made once. One thread each: products of
# small matrices by several threads fight for the cores.
# The order of files is ours (tests/slow_tests.py).
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

check: style types  ## every day: all but the slow tests, some 35 s
	$(PYTEST) -m "not slow"

test: style  ## everything that must hold; COVERAGE=--cov measures what it runs through, too
	$(MAKE) --no-print-directory --jobs 2 types all-tests

.PHONY: all-tests
all-tests: $(STAMP)
	$(PYTEST) $(COVERAGE)

test-studio: $(STAMP)  ## the studio in a real browser; skipped where there is none
	$(BIN)/pytest -q tests/browser

slow: $(STAMP)  ## measure again which tests are slow: tests/slow.txt
	EARATLAS_MEASURE_SLOW=1 $(PYTEST)

fuzz: $(STAMP)  ## 20,000 broken and hostile files of every format; 300 of each are in `make test`
	$(BIN)/python tests/fuzz --count 20000

soak: $(STAMP)  ## an hour of talkers who come and go, live, as fast as it goes: memory, lost samples
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/live.py soak --minutes 60

style: $(STAMP)  ## format, style, and imports that go one way
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

docs: $(DOCS)/installed  ## the site, in site/; a broken link or reference fails
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

# An environment of its own: the site is made from the source, which need not run for it.
$(DOCS)/installed: pyproject.toml
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --group docs
	touch $@

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## the figures of docs/figures.md
	for benchmark in benchmarks/*.py; do $(BIN)/python $$benchmark || exit 1; done

# The lock has all of it. Resolved again, a package that is asked for with an extra (coverage[toml]) and
# has a version newer than the lock's is refused: the day that one came out, nothing could be installed.
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

lock:  ## choose the newest versions again; commit the result
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --custom-compile-command "make lock" --extra all --group dev pyproject.toml -o requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf $(VENV) .venv-lock $(DOCS) site .mypy_cache .pytest_cache .ruff_cache demo
