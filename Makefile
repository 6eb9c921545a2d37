# Two commands do everything on a fresh machine (Python 3.11 to 3.13 and this folder, nothing else):
#   make demo   set-up, then the whole flow from a URL list to samples, offline
#   make test   set-up, then the tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test check setup clean

demo: setup
	$(BIN)/url2lm demo

test: setup
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "url2lm needs Python 3.11 to 3.13; this is %d.%d. Try: make PYTHON=python3.12 ..." % v)'
	@echo "Setting up $(VENV): some minutes of download, without a word until it is done."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build *.egg-info
