.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
NPM := $(BIN)/python -m backend.runtime.node

.PHONY: help
help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 16

$(INSTALLED): requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "uv>=0.9"
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --require-hashes -r requirements.lock
	touch $(INSTALLED)

frontend/node_modules/.package-lock.json: frontend/package-lock.json $(INSTALLED)
	$(NPM) ci --no-audit --no-fund

.PHONY: install
install: $(INSTALLED)  ## Install the Python packages into .venv

.PHONY: run
run: install  ## Start the whole platform; Ctrl-C stops it
	$(BIN)/python manage.py up

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

.PHONY: check-frontend
check-frontend: install frontend/node_modules/.package-lock.json
	$(NPM) run typecheck
	$(NPM) run lint

.PHONY: generated
generated: api-client docs proto  ## Regenerate every generated file

.PHONY: generated-check
generated-check: install frontend/node_modules/.package-lock.json
	@before=$$(git ls-files -s -- $(GENERATED); git diff -- $(GENERATED)); \
	$(MAKE) $(TOGETHER) generated >/dev/null || exit 1; \
	after=$$(git ls-files -s -- $(GENERATED); git diff -- $(GENERATED)); \
	[ "$$before" = "$$after" ] || { echo "Generated files are out of date: run 'make generated'."; exit 1; }

GENERATED := frontend/src/lib/api docs/connectors backend/manager_api/generated

.PHONY: api-client
api-client: install frontend/node_modules/.package-lock.json  ## Generate the OpenAPI document and the TypeScript client
	$(BIN)/python manage.py spectacular --fail-on-warn --file frontend/src/lib/api/openapi.yaml
	$(NPM) run --silent api-client

.PHONY: docs
docs: install  ## Generate the reference pages of the connectors
	$(BIN)/python -m backend.runtime.reference docs/connectors

.PHONY: proto
proto: install  ## Generate the gRPC stubs
	$(BIN)/python -m grpc_tools.protoc -I backend/manager_api/generated=backend/manager_api \
		--python_out=. --pyi_out=. --grpc_python_out=. backend/manager_api/manager.proto

.PHONY: test-fast
test-fast: install  ## Run the tests that need no server
	$(BIN)/pytest tests/unit tests/contract

.PHONY: test
test: install frontend frontend/node_modules/.package-lock.json  ## Run all tests, with real servers and a real browser
	$(NPM) test
	$(BIN)/python -m tests.parts

.PHONY: test-long
test-long: install frontend  ## The long forms of tests, which `test` runs in a short form
	$(BIN)/pytest -m long

.PHONY: bench-spine
bench-spine: install frontend  ## Measure latency, throughput, start-up time and idle cost; writes tests/bench/results/spine.md
	$(BIN)/python -m tests.bench.spine

.PHONY: bench-delivery
bench-delivery: install frontend  ## Measure delivery, compared with a peer (PEER=folder); writes tests/bench/results/delivery.md
	$(BIN)/python -m tests.bench.delivery $(if $(PEER),--peer $(PEER))

.PHONY: bench-transform
bench-transform: install frontend  ## Measure transforms, compared with a peer (PEER=folder), and filters; writes tests/bench/results/transform.md
	$(BIN)/python -m tests.bench.transform $(if $(PEER),--peer $(PEER))

.PHONY: bench-proxy
bench-proxy: install  ## Measure the Kafka proxy, compared with a peer (PEER=binary); writes tests/bench/results/proxy.md
	$(BIN)/python -m tests.bench.proxy $(if $(PEER),--peer $(PEER))

.PHONY: new-connector
new-connector: install  ## Write a new connector and its test cases: make new-connector NAME=amazon_sqs
	$(BIN)/python -m backend.runtime.new_connector $(NAME)
	$(MAKE) --no-print-directory docs

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
