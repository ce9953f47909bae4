# Everything sets itself up in .venv: a machine with Python and make is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed

.PHONY: demo test format lock bench clean

demo: $(STAMP)  ## the main job, with no data of your own
	$(BIN)/earatlas demo

test: $(STAMP)  ## everything that must hold
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n 2
	for example in examples/*.py; do echo $$example && $(BIN)/python -W error $$example > /dev/null || exit 1; done

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## the figures of docs/figures.md
	for benchmark in benchmarks/*.py; do $(BIN)/python $$benchmark || exit 1; done

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

lock:  ## choose the newest versions again; commit the result
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url \
		--no-emit-find-links --custom-compile-command "make lock" --extra all --group dev pyproject.toml -o requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf $(VENV) .venv-lock .mypy_cache .pytest_cache .ruff_cache demo
