# Everything a newcomer needs: each target sets up .venv first, and a second run finds that done.
#   make test PYTEST_ARGS="-k rule -x"      passes arguments on to pytest
#   make setup PYTHON=python3.12            chooses the Python that .venv is made with

PYTHON ?= python3
JOBS ?= 2
PYTEST_ARGS ?=

BIN := .venv/bin
READY := .venv/.lamu-ready
UV := $(shell command -v uv 2>/dev/null)

# Compiled programs outlive the process, however small and quick to compile: most of a test run is compilation.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES ?= -1

# Dozens of tests and examples start a process of their own, which takes a third less where it finds bytecode.
unexport PYTHONDONTWRITEBYTECODE

# Larger data sets, where a folder ../shared/data lies beside the checkout. Nothing needs them.
ifeq ($(LAMU_DATA),)
ifneq ($(wildcard ../shared/data/.),)
export LAMU_DATA := $(abspath ../shared/data)
endif
endif

.PHONY: help setup demo test users examples complete laws stress lint docs release-check python-check bench bench-quick clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## install Lamu and its tools into .venv

# The constraints bind the build back end too. A .venv that is there already is kept and brought up to date.
$(READY): pyproject.toml verification/pyproject.toml constraints.txt
	@if [ ! -x $(BIN)/python ]; then \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
			|| { echo "Lamu needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make setup PYTHON=python3.11" >&2; exit 1; }; \
		echo "making .venv"; \
		if [ -n "$(UV)" ]; then "$(UV)" venv --quiet --python "$$(command -v $(PYTHON))" .venv; \
		else $(PYTHON) -m venv .venv; fi \
			|| { rm -rf .venv; echo "could not make .venv with '$(PYTHON)'" >&2; exit 1; }; \
	fi
	@echo "installing Lamu and its tools into .venv (minutes the first time)"
	@if [ -n "$(UV)" ]; then \
		"$(UV)" pip install --quiet --python $(BIN)/python --constraint constraints.txt \
			--build-constraints constraints.txt --editable '.[test,lint,docs,bench]' --editable ./verification; \
	else \
		{ $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; } && \
		PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
			$(BIN)/python -m pip install --quiet --editable '.[test,lint,docs,bench]' --editable ./verification; \
	fi || { echo "the installation failed: its own message stands above" >&2; exit 1; }
	@touch $@

demo: $(READY) ## a first belief, a first prediction
	@$(BIN)/python examples/demo.py

# The compiler's older way to fuse loops takes two thirds of the time, and programs that run once are not worth its
# optimisations, a fifth of the rest, nor a split into parts that are compiled beside each other, a seventh of what is left.
# What is sensitive to these is in `make stress`, which compiles as users do.
QUICK_COMPILING := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1
test laws examples docs: export XLA_FLAGS := $(QUICK_COMPILING) $(XLA_FLAGS)
# Arguments for pytest name tests of the large part, which comes last, so that its summary ends the output.
test: $(READY) ## the tests, without examples, the rest of the laws, and the long ones
	@$(if $(PYTEST_ARGS),,$(MAKE) --no-print-directory users XLA_FLAGS=)
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not stress and not laws and not examples" $(PYTEST_ARGS)

# What users run is what runs here: no flags of the compiler, and no conftest of tests/ with its patches.
users: $(READY) ## the tests in single precision, optimised and unpatched
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --confcutdir=tests/as_users_run tests/as_users_run $(PYTEST_ARGS)

# Named, since to read the files of all other tests takes as long as a twelfth of these.
EXAMPLES := tests/test_examples.py tests/test_examples_in_docstrings.py
examples: $(READY) ## the scripts of examples/, the blocks of README and the docs, the examples in docstrings
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "examples and not stress" $(EXAMPLES) $(PYTEST_ARGS)

# Whether every recipe is in every file that it touches (CONTRIBUTING.md lists them), in seconds.
COMPLETENESS := tests/test_completeness.py tests/test_documented.py \
	tests/test_verification.py::test_every_algorithm_and_sampler_has_a_check \
	tests/test_verification_shipped.py::test_every_algorithm_with_a_belief_and_every_sampler_has_a_row \
	tests/test_wrappers.py::test_every_recipe_is_runnable_and_what_wraps_is_a_wrapper \
	tests/test_loop.py::test_a_recipe_made_anew_is_the_same_program \
	tests/test_examples.py::test_the_reference_has_every_public_package_and_the_site_every_page
complete: $(READY) ## the files in which a new algorithm is still missing
	@$(BIN)/python -m pytest -q --tb=short --no-header $(COMPLETENESS) $(PYTEST_ARGS)

laws: $(READY) ## every law on every row, without what `make test` runs
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m laws $(PYTEST_ARGS)

stress: $(READY) ## the long and large tests
	@$(BIN)/python -m pytest -m stress $(PYTEST_ARGS)

lint: $(READY) ## style, types and floors
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-logo

# Not --quiet: it would silence the warnings before they are counted.
docs: $(READY) ## the site, into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean
	@echo "open site/index.html; its search needs a server: $(BIN)/python -m http.server -d site"

# The peers' environment is made under .cache/peers. BENCH_ARGS passes arguments on: BENCH_ARGS="--rows nuts --again".
BENCH_ARGS ?=
bench: $(READY) ## Lamu's speed beside its peers: all rows, hours; goes on where it was interrupted
	@$(BIN)/python -m benchmarks.speed $(BENCH_ARGS)

bench-quick: $(READY) ## the quick rows of it, ten minutes on two quiet cores
	@$(BIN)/python -m benchmarks.speed --quick --again $(BENCH_ARGS)

release-check: $(READY) ## build, install into an empty environment, and run what the README begins with
	@PYTHON="$(PYTHON)" .ci/release-check

# make python-check PYTHON=python3.13 VERSIONS=lowest
VERSIONS ?= newest
python-check: ## README's blocks and some tests on one Python, with the lowest or the newest dependencies
	@PYTHON="$(PYTHON)" VERSIONS="$(VERSIONS)" .ci/python-check

clean: ## remove what the targets made, .venv included
	rm -rf .venv .cache .pytest_cache .ruff_cache .import_linter_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
