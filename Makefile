# Everything is installed into .venv: Python and make are sufficient.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
DOCS   := .venv-docs
# Keep compiled files even if the environment disables them: test collection takes half the time.
export PYTHONDONTWRITEBYTECODE :=
# Of the packages, only what is imported is compiled.
PIP_OPTIONS := --quiet --disable-pip-version-check --no-compile

.PHONY: demo environments check test test-studio slow fuzz soak style types docs format lock bench clean

demo: $(STAMP)  ## separate two talkers without any data
	$(BIN)/earatlas demo

environments: $(STAMP) $(DOCS)/installed

# A file is run by one worker, so that its fixtures are made once. One thread per worker: small
# matrix products do not benefit from several. tests/slow_tests.py determines the order of the files.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

check: style types  ## daily: style, types, vocabulary and the fast tests, about 30 s
	$(PYTEST) -m "not slow"

test: style  ## all tests; COVERAGE=1 measures the coverage, which must be at least 97 %
	$(MAKE) --no-print-directory --jobs 2 types all-tests

.PHONY: all-tests
all-tests: $(STAMP)
	rm -f .coverage .coverage.*
	EARATLAS_COVERAGE=$(COVERAGE) $(PYTEST)
ifdef COVERAGE
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered
endif

test-studio: $(STAMP)  ## the studio in a real browser; skipped without one
	$(BIN)/pytest -q tests/browser

slow: $(STAMP)  ## measure which tests are slow: tests/slow.txt
	EARATLAS_MEASURE_SLOW=1 $(PYTEST)

fuzz: $(STAMP)  ## 20,000 damaged and hostile files per format; `make test` runs 300 of each
	$(BIN)/python tests/fuzz --count 20000

soak: $(STAMP)  ## one hour of streaming as fast as possible: memory, lost samples
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/streaming.py soak --minutes 60

style: $(STAMP)  ## formatting, linting and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

docs: $(DOCS)/installed  ## the site, in site/; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

# A separate environment: the site is made from the source without importing it.
$(DOCS)/installed: pyproject.toml
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install $(PIP_OPTIONS) --upgrade "pip>=25.1"
	$(DOCS)/bin/python -m pip install $(PIP_OPTIONS) --group docs
	touch $@

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## the figures of docs/figures
	for benchmark in benchmarks/*.py; do $(BIN)/python $$benchmark || exit 1; done

# The lock is complete, so nothing is resolved again: with resolution, pip refuses a package that is
# requested with an extra as soon as a newer version than the locked one exists.
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps -r requirements.lock
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps --no-build-isolation --editable .
	touch $@

lock:  ## update the locked versions; commit the result
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet "uv==0.13.*"
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --custom-compile-command "make lock" --extra all --group dev pyproject.toml -o requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf $(VENV) .venv-lock $(DOCS) site .mypy_cache .pytest_cache .ruff_cache demo
