# `make run` answers a prompt, `make serve` serves a model, `make test` checks everything.
PROMPT ?= What is gravity?
PYTHON ?= python3
export PYTHON

.PHONY: run chat serve test check format bench conformance clean help

run: ## answer PROMPT with the default model
	@scripts/install run
	@.venv/bin/firstword run "$$PROMPT"
export PROMPT

chat: ## talk to the default model
	@scripts/install run
	@.venv/bin/firstword chat

serve: ## answer clients of the OpenAI and Anthropic APIs, and a page, with MODEL or the default one
	@scripts/install serve
	@.venv/bin/firstword serve $(MODEL)

test: ## format, lint, types, layers and the test suite
	@scripts/install dev
	@scripts/check
	@scripts/test

check: ## format, lint, types and layers only
	@scripts/install dev
	@scripts/check

format: ## rewrite the sources in the project's format
	@scripts/install dev
	@.venv/bin/ruff format src tests scripts benchmarks clients
	@.venv/bin/ruff check --fix src tests scripts benchmarks clients

bench: ## how fast MODEL runs here (scripts/bench: also kernels, peers)
	@scripts/install dev
	@scripts/bench $(MODEL)

conformance: ## compare all logits with transformers (installs torch)
	@scripts/install conformance
	@scripts/conformance

clean: ## remove .venv, build and caches
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14
