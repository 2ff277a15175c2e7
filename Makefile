# Every target sets up what it needs in .venv first; that takes no time when nothing changed.
# PYTHON=/path/to/python chooses the interpreter, otherwise the first of python3.11, 3.12, 3.13, python3 that works.

PY := .venv/bin/python
SETUP := sh tools/python tools/setup_env.py
.DEFAULT_GOAL := help
export PYTHON

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '%-20s %s\n' "$$target" "$$text"; done

.PHONY: setup-run setup-dev setup-bench
setup-run:
	@$(SETUP) run
setup-dev: ## everything but benchmarks into .venv: PostgreSQL, the tools of contributors
	@$(SETUP) dev
setup-bench:
	@$(SETUP) bench

.PHONY: demo
demo: setup-run ## a server with the incident pack, and a client that walks through it
	@$(PY) -m tools.demo.public_server
	@$(PY) -m tools.demo

.PHONY: quick test
quick: setup-dev ## lint, prose, types, import contract, and the fast tests that the change can affect; ALL=1 runs all of them
	@$(PY) tools/check.py lint prose types imports affected
test: setup-dev ## everything that has to hold: lint, prose, types, import contract, docs, tests
	@$(PY) tools/check.py

.PHONY: lint fmt types docs reference coverage
lint: setup-dev ## style, prose, strict types and import contract
	@$(PY) tools/check.py lint prose types imports
fmt: setup-dev ## format the code and fix what can be fixed
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
types: setup-dev ## strict type check
	@$(PY) tools/check.py types
docs: setup-dev ## build the documentation into build/docs
	@$(PY) tools/check.py docs
reference: setup-dev ## write what the documentation takes from the code
	@$(PY) -m tools.reference

coverage: setup-dev ## which lines and branches the tests leave out; below 90 % fails
	@$(PY) tools/check.py coverage

.PHONY: bench
bench: setup-bench ## run every benchmark and print its table
	@set -e; for script in benchmarks/[!_]*.py; do \
		test -e "$$script" || { echo "no benchmarks yet"; break; }; \
		printf '\n== %s\n' "$$script"; $(PY) "$$script"; done

.PHONY: requirements
requirements: setup-dev ## which requirements have a test, by area
	@$(PY) -m tests.requirements

.PHONY: interop
interop: setup-dev ## the conformance suite, public MCP servers and clients, and agents on the newest SDKs; installs them into build/interop
	@$(PY) -m tests.interop.install
	.venv/bin/pytest tests/interop -m soak

.PHONY: soak fuzz
soak: setup-dev ## the tests that take minutes
	.venv/bin/pytest -m soak -n 2 --dist worksteal --ignore tests/interop
	.venv/bin/pytest -n 2 --dist worksteal --hypothesis-profile=soak
fuzz: setup-dev ## two million random inputs for the parser
	$(PY) tests/fuzz/fuzz_parser.py --count 2000000

.PHONY: pins
pins: setup-dev ## pin the newest allowed versions in requirements/
	$(PY) tools/update_pins.py

.PHONY: clean
clean: ## remove .venv, builds and caches
	rm -rf .venv build dist .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
