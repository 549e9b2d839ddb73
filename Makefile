.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
NPM := $(BIN)/python -m backend.runtime.node

# Dozens of Python processes start in an installation and hundreds in the tests; each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 16

$(INSTALLED): requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "uv>=0.9"
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	touch $(INSTALLED)

frontend/node_modules/.package-lock.json: frontend/package-lock.json $(INSTALLED)
	$(NPM) ci --no-audit --no-fund

.PHONY: install
install: $(INSTALLED)  ## Install the Python packages into .venv

.PHONY: run
run: install  ## Start the whole platform; Ctrl-C stops it
	$(BIN)/python manage.py up

.PHONY: demo-sql
demo-sql: install  ## Join pageviews in Kafka with users in PostgreSQL, on the platform that runs
	$(BIN)/python manage.py demo_sql

.PHONY: down
down: install  ## Stop the platform; all data is kept
	$(BIN)/python manage.py down

.PHONY: frontend
frontend: install  ## Build the console's front end
	$(BIN)/python -m backend.runtime.node

# Two at a time; what each says is printed when it ends, by a Make that can.
TOGETHER := --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: check
check: install  ## Run linters, type checks, boundary checks and the check of generated files
	$(MAKE) $(TOGETHER) check-types check-others check-frontend
	$(MAKE) --no-print-directory generated-check

.PHONY: check-types
check-types: install
	$(BIN)/mypy

.PHONY: check-others
check-others: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/yamllint --strict docker
	$(BIN)/hadolint docker/*.Dockerfile
	$(MAKE) --no-print-directory docs

.PHONY: check-frontend
check-frontend: install frontend/node_modules/.package-lock.json
	$(NPM) run lint

.PHONY: generated
generated: api-client reference proto  ## Regenerate every generated file

.PHONY: generated-check
generated-check: install frontend/node_modules/.package-lock.json
	@before=$$(git ls-files -s -- $(GENERATED); git diff -- $(GENERATED)); \
	$(MAKE) $(TOGETHER) generated >/dev/null || exit 1; \
	after=$$(git ls-files -s -- $(GENERATED); git diff -- $(GENERATED)); \
	[ "$$before" = "$$after" ] || { echo "Generated files are out of date: run 'make generated'."; exit 1; }

GENERATED := frontend/src/lib/api docs/connectors docs/operations/settings.md docs/reference/survival.md docs/reference/matrix.md backend/manager_api/generated

.PHONY: api-client
api-client: install frontend/node_modules/.package-lock.json  ## Generate the OpenAPI document and the TypeScript client
	$(BIN)/python manage.py spectacular --fail-on-warn --file frontend/src/lib/api/openapi.yaml
	$(NPM) run --silent api-client

.PHONY: docs
docs: install  ## Build the documentation's site, which the console serves at /docs/
	$(BIN)/python -m backend.runtime.documentation

.PHONY: reference
reference: install  ## Generate the reference pages of connectors, settings, what survives and what arrives
	$(BIN)/python -m backend.runtime.reference docs
	$(BIN)/python -m tests.e2e.matrix docs/reference/matrix.md

.PHONY: proto
proto: install  ## Generate the gRPC stubs
	$(BIN)/python -m grpc_tools.protoc -I backend/manager_api/generated=backend/manager_api \
		--python_out=. --pyi_out=. --grpc_python_out=. backend/manager_api/manager.proto backend/manager_api/jobs.proto \
		backend/manager_api/exports.proto backend/manager_api/sql.proto

.PHONY: test-fast
test-fast: install generated-check  ## Check generated files and boundaries, and run the tests that need no server
	$(BIN)/lint-imports
	$(BIN)/pytest tests/unit tests/contract

.PHONY: test
test: install frontend docs frontend/node_modules/.package-lock.json  ## Run all tests, with real servers and a real browser
	$(NPM) test
	$(BIN)/python -m tests.parts

.PHONY: test-part
test-part: install frontend docs  ## Run one part of the tests: make test-part PART=console
	$(BIN)/python -m tests.parts --only $(PART)

.PHONY: test-busy
test-busy: install frontend docs  ## Run all tests while every core is busy with something else
	$(BIN)/python -m tests.parts --busy

.PHONY: test-long
test-long: install frontend  ## The long forms of tests, which `test` runs in a short form
	$(BIN)/pytest -m long
	$(MAKE) --no-print-directory test-generated

# What is generated differs each time; a seed that is printed repeats it: make test-generated SEED=123 DOCUMENT_SECONDS=0
ifndef SEED
SEED := $(shell echo $$RANDOM)
endif
DOCUMENT_SECONDS := 3600
LONG := $(BIN)/pytest --hypothesis-profile=long --timeout=7200
STEPS_AND_CODECS := $(addprefix tests/unit/test_,avro.py comparison.py csv_text.py findings.py json.py message.py times.py \
	transforms.py trial.py xml_text.py)

.PHONY: test-generated
test-generated: install  ## 10,000 generated REST requests, and an hour of generated documents through every step and codec
	@echo "Seed: $(SEED)"
	$(LONG) --hypothesis-seed=$(SEED) tests/integration/console/test_openapi.py
	@seed=$(SEED); ends=$$((SECONDS + $(DOCUMENT_SECONDS))); while :; do \
		echo "Seed: $$seed"; \
		$(LONG) --hypothesis-seed=$$seed $(STEPS_AND_CODECS) || exit 1; \
		seed=$$((seed + 1)); [ $$SECONDS -lt $$ends ] || break; \
	done

.PHONY: test-n8n
test-n8n: install  ## The tests that need n8n, which is installed from npm into var: some minutes and 1.6 GB
	$(BIN)/pytest -m n8n

.PHONY: chaos
chaos: install frontend  ## Kill, stop and fill everything for twenty minutes per seed; writes tests/bench/results/chaos.md
	$(BIN)/python -m tests.chaos

.PHONY: screenshots
screenshots: install frontend  ## Take pictures of every page of the console into var/screens, check each by axe; writes tests/bench/results/console.md
	$(BIN)/python -m tests.screens $(SCREENS)

.PHONY: bench-spine
bench-spine: install frontend  ## Measure latency, throughput, start-up time and idle cost; writes tests/bench/results/spine.md
	$(BIN)/python -m tests.bench.spine

.PHONY: bench-delivery
bench-delivery: install frontend  ## Measure delivery, compared with a peer (PEER=folder); writes tests/bench/results/delivery.md
	$(BIN)/python -m tests.bench.delivery $(if $(PEER),--peer $(PEER))

.PHONY: bench-fairness
bench-fairness: install  ## Measure outputs beside others that hang; writes tests/bench/results/fairness.md
	$(BIN)/pytest -m long tests/integration/data_plane/test_fairness.py

.PHONY: bench-transform
bench-transform: install frontend  ## Measure transforms, compared with a peer (PEER=folder), and filters; writes tests/bench/results/transform.md
	$(BIN)/python -m tests.bench.transform $(if $(PEER),--peer $(PEER))

.PHONY: bench-proxy
bench-proxy: install  ## Measure the Kafka proxy, compared with a peer (PEER=binary), and beside strangers (PART=strangers); writes tests/bench/results/proxy.md
	$(BIN)/python -m tests.bench.proxy $(if $(PEER),--peer $(PEER)) $(if $(PART),--part $(PART))

.PHONY: bench-gateway
bench-gateway: install frontend  ## Measure the read gateway beside a Kafka broker; writes tests/bench/results/gateway.md
	$(BIN)/python -m tests.bench.gateway

.PHONY: bench-config
bench-config: install  ## Measure start, change and memory with 50,000 pipelines; writes tests/bench/results/config.md
	$(BIN)/python -m tests.bench.config

.PHONY: bench-lists
bench-lists: install frontend  ## Measure the lists of 500 pipelines and 100,000 dead letters in a browser; writes tests/bench/results/lists.md
	$(BIN)/python -m tests.bench.lists

.PHONY: bench-versions
bench-versions: install frontend  ## Measure the data plane beside that of another commit (OLD=folder); writes tests/bench/results/versions.md
	$(BIN)/python -m tests.bench.versions $(OLD)

.PHONY: bench-connectors
bench-connectors: install  ## Measure SQL inputs and outputs, files and leases, compared with a peer (PEER=binary); writes tests/bench/results/connectors.md
	$(BIN)/python -m tests.bench.connectors $(if $(PEER),--peer $(PEER))

.PHONY: new-connector
new-connector: install  ## Write a new connector and its test cases: make new-connector NAME=amazon_sqs CAPABILITY="deliver read_batch"
	$(BIN)/python -m backend.runtime.new_connector "$(NAME)" $(CAPABILITY)
	$(MAKE) --no-print-directory reference

.PHONY: kafka-messages
kafka-messages: install  ## Regenerate the Kafka protocol's definitions from the pinned jars
	$(BIN)/python -m backend.runtime.jars
	$(BIN)/python -m backend.runtime.kafka_messages var/jars/kafka

.PHONY: format
format: install  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: lock
lock: install  ## Update the pinned Python packages
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --extra dev --generate-hashes --universal \
		--python-version 3.11 --no-emit-index-url --no-annotate --no-header -o requirements.lock
