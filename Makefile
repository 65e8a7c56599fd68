# Two commands do everything on a fresh machine that has Python 3.11+, pip and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
UV     := $(shell command -v uv 2>/dev/null)
# The user's own pip settings (a folder of wheels, say) carry over to uv, which does not read them.
LINKS   = $$($(PYTHON) -m pip config get global.find-links 2>/dev/null || true)

ifneq ($(UV),)
INSTALL = UV_FIND_LINKS="$(LINKS)" $(UV) pip install -q --python $(BIN)/python -c constraints.txt
else
INSTALL = $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
endif

.PHONY: demo test lint docs clean
demo: $(VENV)/.ok
	$(BIN)/numerate demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "docs: docs/_build/html/index.html"

$(VENV)/.ok: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[bench]'
	touch $@

$(VENV)/.dev: $(VENV)/.ok
	$(INSTALL) -e '.[formula]' -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .ruff_cache
