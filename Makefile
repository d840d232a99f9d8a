# Everything goes into .venv, except for the Debian packages of the lab (see `lab`).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# What the Open vSwitch lab needs of Debian; its tests are skipped where it is missing.
LAB_PACKAGES := openvswitch-switch ethtool iproute2 openssl util-linux
LAB_PROGRAMS := ovs-vswitchd ovs-vsctl ovs-ofctl ovsdb-server ethtool ip openssl setpriv

.PHONY: help setup lab lint test bench lock clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv with everything that is needed to work on dzflow

$(STAMP): pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dzflow needs Python 3.11 or later; set PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

lint: setup  ## ruff, mypy --strict, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lab:  ## install Open vSwitch and what else the lab needs (as root, on Debian)
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=; policy=/usr/sbin/policy-rc.d; \
	for program in $(LAB_PROGRAMS); do \
	  command -v $$program >/dev/null || missing="$$missing $$program"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "The tests of the Open vSwitch lab are skipped, for there is no$$missing." \
	       "As root on Debian, 'make lab' installs them."; \
	  exit 0; \
	fi; \
	command -v ovs-vswitchd >/dev/null || fresh=yes; \
	: "The lab needs the programs only; the package would start a switch of its own."; \
	if [ ! -e $$policy ]; then \
	  trap "rm -f $$policy" EXIT; trap 'exit 1' INT TERM; \
	  printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; \
	fi; \
	apt-get -qq update && \
	DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install $(LAB_PACKAGES) >/dev/null && \
	if [ -n "$$fresh" ]; then update-rc.d openvswitch-switch disable; fi

test: setup lab  ## all tests
	$(BIN)/python -m pytest $(ARGS)

bench: setup lab  ## a short pass of every benchmark, a table at the end
	$(BIN)/dzflow bench all --quick

lock:  ## pin the dependencies anew (no download addresses are recorded)
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)/lock/bin/uv pip compile pyproject.toml --all-extras --generate-hashes --no-emit-index-url --universal --python-version 3.11 --quiet --custom-compile-command "make lock" --output-file requirements/dev.txt

clean:  ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
