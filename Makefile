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

.PHONY: demo test torture lint docs page clean
demo: $(VENV)/.ok
	$(BIN)/numerate demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

# Nightly: kills, damage, fuzz and hostile files at full size, with their counts.
torture: $(VENV)/.dev
	$(BIN)/python tests/torture --size full

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "docs: docs/_build/html/index.html"

# For developers of the page: its source is in web/, its build in src/numerate/page/bundle is checked in. Needs Node 20+.
page:
	cd web && npm ci && npm run build

# An installation that was interrupted (no pip yet, or .unfinished still there) starts afresh.
$(VENV)/.ok: pyproject.toml constraints.txt
	@test ! -e $(VENV)/.unfinished && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@touch $(VENV)/.unfinished
	$(INSTALL) -e '.[formula]'
	@rm $(VENV)/.unfinished && touch $@

$(VENV)/.dev: $(VENV)/.ok requirements-dev.txt
	@mv $(VENV)/.ok $(VENV)/.unfinished
	$(INSTALL) -e '.[page,tensorboard]' -r requirements-dev.txt
	@mv $(VENV)/.unfinished $(VENV)/.ok && touch $@

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .ruff_cache
