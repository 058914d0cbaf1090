# Two commands: `make compare` shows what graphdiff finds on real engines, `make test` runs every test.
# Both make .venv first and start at once when nothing changed. See tools/make-venv.sh for what goes in and why.
#
# Variables:  PYTHON          the interpreter .venv is made from (3.11 or newer; default python3)
#             TORCH_INDEX_URL the CPU wheel index of PyTorch, where pip's own sources lack torch==2.13.0+cpu
#             PYTEST_ARGS     more arguments for pytest, for example PYTEST_ARGS="tests/unit -k report"

PYTHON ?= python3
TORCH_INDEX_URL ?=
PYTEST_ARGS ?=
export PYTHON TORCH_INDEX_URL

.PHONY: help compare test venv fixtures clean

help:
	@echo "make compare   what vLLM compiles for Qwen3 against the transformers forward, into build/compare"
	@echo "make test      the whole test suite"
	@echo "make venv      only make or update .venv"
	@echo "make fixtures  capture again the four models kept in fixtures/cuda-90 (a few minutes)"
	@echo "make clean     remove build results (.venv stays)"

venv:
	@bash tools/make-venv.sh

# A demonstration does not fail because it finds what it shows: --fail-on never. Where the engine is not installed, the
# captures kept in the repository stand in, and that is said.
REPORT = --format terminal,json,markdown --output build/compare --fail-on never
KEPT = fixtures/cuda-90/qwen3-1.7b
compare: venv
	@if .venv/bin/python -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"; then \
		set -x; .venv/bin/graphdiff compare vllm:qwen3-tiny transformers:qwen3-tiny $(REPORT); \
	else \
		echo "vllm is not installed: comparing the captures kept in $(KEPT)"; \
		set -x; .venv/bin/graphdiff compare $(KEPT)/vllm.capture $(KEPT)/transformers.capture $(REPORT); \
	fi

# Two workers; a file stays with one worker, so its captures are made once.
test: venv
	.venv/bin/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

fixtures: venv
	.venv/bin/python tools/make_fixtures.py

clean:
	rm -rf build dist
