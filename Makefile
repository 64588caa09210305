# One command each; every one does its own set-up first. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
CHAPTERS ?= $(sort $(wildcard chapters/*.ipynb))
PORT ?= 8000

# Two processes of one thread each: quick on small machines, and sums do not depend on the number of cores.
WORKERS ?= 2
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

# Memory that was freed is kept for the next step of a training, in place of a hundred page faults each time: on Linux
# a twentieth of the CPU time of all chapters. 32 MiB is the most that glibc takes for a threshold of mmap.
export MALLOC_MMAP_THRESHOLD_ := 33554432
export MALLOC_TOP_PAD_ := 67108864
export MALLOC_TRIM_THRESHOLD_ := 1073741824

# Containers often forbid it, and then every worker and every kernel compiles the packages again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup book test lint unit chapters peers reliability site-test offline benchmark notebooks serve clean colab oldest course-test

help:  ## Show this list
	@echo "Vision Transformers, Step by Step"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)  ## Create .venv with the pinned environment (the other commands do this by themselves)

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "The book needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 || true)"; \
		echo "Install a newer one, or name it:  make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python cannot create virtual environments (module venv or ensurepip is missing)."; \
		echo "On Debian or Ubuntu:  sudo apt install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

book: $(STAMP)  ## Build the site in _build/html; every warning is an error
	$(BIN)/jupyter-book build . --all -W -n --keep-going
	@echo "Open _build/html/index.html in a browser, or run: make serve"

# All three are run, whatever comes of the first: at the end stands what has failed.
test: $(STAMP)  ## What a pull request has to pass: style, types, tests, every chapter; no browser, no network
	@failed=; for stage in lint unit chapters; do $(MAKE) --no-print-directory $$stage || failed="$$failed $$stage"; done; \
		if [ -n "$$failed" ]; then echo "make test has failed in:$$failed"; exit 1; fi

lint: $(STAMP)  ## Check style, spelling and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/basedpyright

unit: $(STAMP)  ## Run the tests of both packages, the book and the records that are quick and need no browser
	$(ONE_THREAD) $(BIN)/python -m pytest --junitxml=_build/tests.xml -n $(WORKERS) tests --ignore tests/browser

chapters: $(STAMP)  ## Re-run every chapter, compare its stored outputs, and print what each costs
ifneq ($(CHAPTERS),)
	PYTHONPATH=tools $(ONE_THREAD) $(BIN)/python -m pytest -p chapter_costs --junitxml=_build/chapters.xml -n $(WORKERS) \
		--dist loadfile --nbval --nbval-current-env --nbval-sanitize-with tests/book/approximate.cfg $(CHAPTERS)
endif

reliability: $(STAMP)  ## Run the slow tests: kills, full disks, damaged files, recorded runs, models of full width
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m slow tests --ignore tests/browser/test_waiting.py

site-test: $(STAMP)  ## Open live figures, drawings and every page of the built site in a browser; lint the scripts by npm
	@test -f _build/html/index.html || $(MAKE) book
	$(BIN)/python -m pytest -n $(WORKERS) tests/browser

offline: $(STAMP)  ## Pack the built site, formulas included, in _build/vitbook-offline.zip
	@test -f _build/html/index.html || $(MAKE) book
	$(BIN)/python tools/offline.py

notebooks: $(STAMP)  ## Re-execute chapters and store their outputs; some only: CHAPTERS="chapters/01_attention.ipynb"
	$(BIN)/python tools/notebooks.py execute $(CHAPTERS)

colab: $(STAMP)  ## Run every chapter as Colab would: alone, with what Colab holds and the install cell's own install
	$(BIN)/python tools/play_colab.py $(CHAPTERS)

# The tests of the modules alone: the book's own need its pinned tools.
OLDEST := .venv-oldest
MODULE_TESTS := tests --ignore tests/book --ignore tests/browser --ignore tests/site

oldest: requirements.txt pyproject.toml  ## Test the package with the oldest versions that pyproject.toml admits
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check $$(grep '^uv==' requirements.txt)
	grep -E '^(beartype|beautifulsoup4|nbclient|nbformat|pytest|pytest-xdist|pyyaml)==' requirements.txt | \
		$(OLDEST)/bin/uv pip compile --quiet --python $(OLDEST)/bin/python --resolution lowest-direct --only-binary :all: \
		--no-header --no-annotate --all-extras --output-file $(OLDEST)/oldest.txt pyproject.toml -
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --requirements $(OLDEST)/oldest.txt
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --no-deps --editable .
	$(ONE_THREAD) $(OLDEST)/bin/python -m pytest -n $(WORKERS) $(MODULE_TESTS)

peers: $(VENV)/peers/.ready  ## Compare logits, preprocessing and positions with those of timm and torchvision themselves
	PYTHONPATH=$(VENV)/peers $(ONE_THREAD) $(BIN)/python -m pytest -m peers tests --ignore tests/browser

COURSE := .venv-course

course-test: $(STAMP)  ## Judge notebooks with nbgrader, Otter and nbmake, in an environment that adds them to the book's
	$(BIN)/python -m venv --clear $(COURSE)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" > \
		$$($(COURSE)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/book.pth
	$(COURSE)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/notebook_tools/requirements.txt
	$(ONE_THREAD) $(COURSE)/bin/python -m pytest tests/notebook_tools

benchmark: $(VENV)/peers/.ready  ## Measure speed and memory beside other implementations; a few minutes: BENCHMARK=--quick
	PYTHONPATH=$(VENV)/peers $(BIN)/python benchmarks/benchmark.py $(BENCHMARK)

$(VENV)/peers/.ready: $(STAMP) benchmarks/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/peers \
		-r benchmarks/requirements.txt
	@touch $@

serve: $(STAMP)  ## Show the built site on http://localhost:8000
	@test -f _build/html/index.html || $(MAKE) book
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

clean:  ## Remove what was built (the environment stays; delete .venv to remove that too)
	rm -rf _build api .pytest_cache .ruff_cache build *.egg-info
	find vitbook vitbook_workshop tests records tools benchmarks _ext -name __pycache__ -type d -prune -exec rm -rf {} +
