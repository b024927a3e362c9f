# make demo   installs what is missing, builds, runs experiments/pipeline.yaml
# make test   installs what is missing, builds, runs the core of the tests
# make help   lists the targets

PREFIX ?= .venv
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR

# They draw the same cases every time; `make soak` draws new ones.
test test-all: export PROPTEST_RNG_SEED = 20071213

PYTHON := .venv/bin/python
WHEELS := build/wheels
PROTO := proto/agent.proto proto/machine.proto
# Made from them, each in the Python package that is its client.
PROTO_PYTHON := python/loopscope/provider/_proto/agent_pb2.py python/loopscope/testbed/_proto/machine_pb2.py

C_SOURCES := $(wildcard crates/time/c/*.c crates/trace/c/*.c crates/clock/c/*.c crates/phase/c/*.c)
C_HEADERS := $(wildcard include/loopscope/*.h crates/time/c/*.h crates/trace/c/*.h crates/clock/c/*.h crates/phase/c/*.h)
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml -o -name '*.bpf.[ch]') $(PROTO)
TRACE_PYTHON := $(shell find crates/trace-py -type f -not -path '*/__pycache__/*')
VIDEO_PYTHON := $(shell find apps/video -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*')
PYTHON_SOURCES := pyproject.toml $(shell find python -type f -not -path '*/_proto/*' -not -path '*/__pycache__/*')

# The processor that it is built for. Another than this machine's: see docs/guide/install.md.
THIS := $(shell uname -m)
MACHINE ?= $(THIS)
BUILT := build$(if $(filter $(THIS),$(MACHINE)),,/$(MACHINE))
LIB := $(BUILT)/lib
STAGE := $(BUILT)/stage
DIST := build/dist
# -g1: lines for backtraces; all of -g would be four times what the library is otherwise.
LIB_CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -Wpedantic
# Has the division of 128-bit numbers. Zig's library for that has more debug information than all
# of ours is.
LIBGCC = $(shell $(if $(filter $(THIS),$(MACHINE)),,$(MACHINE)-linux-gnu-)gcc -print-libgcc-file-name)
ZIG_CC := $(CURDIR)/scripts/zig-cc-$(MACHINE)
ifeq ($(MACHINE),$(THIS))
RELEASE := $(CARGO_TARGET_DIR)/release
PACKED := $(STAGE)/.done $(WHEELS)/.done $(WHEELS)/.trace-done $(WHEELS)/.video-done
else
# By Debian's compiler, which needs dependencies of its own.
RELEASE := $(CARGO_TARGET_DIR)/cross/$(MACHINE)-unknown-linux-gnu/release
CROSS := RUSTC=$(CURDIR)/build/cross/rustc CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/cross
PACKED := $(STAGE)/.done
endif

.DEFAULT_GOAL := help
.PHONY: help setup setup-test build install dist demo test test-all soak lint docs bench clean

help: ## lists the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1 \t/'

setup: .venv/.setup ## installs system packages (as root on Debian/Ubuntu) and the pinned Python requirements
setup-test: .venv/.setup-test

.venv/.setup: scripts/setup requirements.txt
	scripts/setup
	@touch $@

.venv/.setup-test: scripts/setup requirements-dev.txt .venv/.setup
	scripts/setup --test
	@touch $@

build: setup ## builds everything in release and installs it into .venv
	@$(MAKE) --no-print-directory install PREFIX=.venv

install: $(WHEELS)/.done $(WHEELS)/.trace-done $(WHEELS)/.video-done ## installs into PREFIX=…
	@scripts/install "$(PREFIX)"

dist: $(PACKED) ## builds wheels, tarball and Debian package into build/dist
	scripts/package $(STAGE) $(MACHINE) $(filter $(WHEELS)/.done,$(PACKED))

$(RELEASE)/loopscope-host: $(RUST_SOURCES) $(C_SOURCES) $(C_HEADERS) .cargo/config.toml scripts/zig-cc | setup $(if $(CROSS),build/cross/rustc)
	MAKEFLAGS= $(CROSS) cargo build --release --locked -p loopscope-host -p loopscope-stm-c -p loopscope-preload $(if $(CROSS),--target $(MACHINE)-unknown-linux-gnu)
	@touch $@

build/cross/rustc: scripts/setup-cross
	scripts/setup-cross $(MACHINE)

$(LIB)/libloopscope.a: $(C_SOURCES) $(C_HEADERS) Makefile scripts/zig-cc | setup
	@rm -rf $(LIB)/obj $@ && mkdir -p $(LIB) $(LIB)/obj
	cd $(LIB)/obj && $(ZIG_CC) $(LIB_CFLAGS) -I$(CURDIR)/include -c $(addprefix $(CURDIR)/,$(C_SOURCES))
	$(AR) rcs $@ $(LIB)/obj/*.o

$(LIB)/libloopscope.so: $(LIB)/libloopscope.a
	$(ZIG_CC) -shared -rtlib=none -Wl,-soname,libloopscope.so.0 -Wl,-z,defs -Wl,-z,nodelete \
	  -o $@ $(LIB)/obj/*.o $(LIBGCC) -lpthread

# What every package has: bin, lib, include, share.
$(STAGE)/.done: $(RELEASE)/loopscope-host $(LIB)/libloopscope.so $(wildcard experiments/*.* experiments/graphs/*) scripts/stage
	scripts/stage $(RELEASE)/loopscope-host $(LIB) $(STAGE)
	@touch $@

$(PROTO_PYTHON): python/%_pb2.py: $(PROTO) | setup
	@mkdir -p $(@D) && touch $(@D)/__init__.py
	$(PYTHON) -m grpc_tools.protoc -I$(patsubst %/,%,$(dir $*))=proto \
	  --python_out=python --pyi_out=python --grpc_python_out=python $*.proto

$(WHEELS)/.done: $(STAGE)/.done $(RUST_SOURCES) $(PYTHON_SOURCES) $(PROTO_PYTHON) | setup
	@mkdir -p $(WHEELS) && rm -f $(WHEELS)/loopscope-*.whl
	.venv/bin/maturin build --release --locked -i $(PYTHON) -o $(WHEELS)
	@touch $@

$(WHEELS)/.trace-done: $(TRACE_PYTHON) $(C_SOURCES) $(C_HEADERS) Makefile | setup
	@mkdir -p $(WHEELS) && rm -f $(WHEELS)/loopscope_trace-*.whl
	CC="$(ZIG_CC)" $(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --no-index -w $(WHEELS) ./crates/trace-py
	@touch $@

$(WHEELS)/.video-done: $(VIDEO_PYTHON) Makefile | setup
	@mkdir -p $(WHEELS) && rm -f $(WHEELS)/loopscope_video-*.whl
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --no-index -w $(WHEELS) ./apps/video
	@touch $@

demo: build ## runs the distributed pipeline and says where its report is
	.venv/bin/loopscope run experiments/pipeline.yaml

# Most tests wait for experiments that run in real time, so two at a time. The tests of a file run
# one after the other, since they share what it has recorded; the longest files begin first.
test: ## runs the core of the tests
test-all: ## runs all tests, as CI does; those that need root say so where they skip
# Tests that take long are marked: in Rust as ignored, in Python as `full`.
test: QUICK = RUSTC=$(CURDIR)/scripts/rustc-quick-tests
test: PYTEST_CORE = -m "not full"
test-all: CARGO_ALL = -- --include-ignored
test test-all:
	@# What tests need is installed while the compiler works.
	@$(MAKE) --no-print-directory -j2 setup-test $(RELEASE)/loopscope-host
	@$(MAKE) --no-print-directory build
	$(QUICK) cargo test --release --locked --workspace --exclude loopscope-python $(CARGO_ALL)
	$(PYTHON) -m pytest $(PYTEST_CORE) -n 2 --dist loadfile --no-loadscope-reorder --durations=20 --junit-xml=build/pytest.xml

soak: setup-test build ## the tests with their full counts; results under tests/soak-results
	@mkdir -p tests/soak-results
	LOOPSCOPE_SOAK=1 PROPTEST_CASES=20000 cargo test --release --locked --workspace --exclude loopscope-python \
	  -- --include-ignored > tests/soak-results/cargo.txt 2>&1 || { tail -n 50 tests/soak-results/cargo.txt; exit 1; }
	LOOPSCOPE_SOAK=1 $(PYTHON) -m pytest tests --durations=0 --junit-xml=tests/soak-results/pytest.xml

lint: setup-test $(PROTO_PYTHON) ## formatting, warnings, types, dependency rules, wording
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	.venv/bin/ruff check python tests scripts bench crates/trace-py apps
	.venv/bin/ruff format --check python tests scripts bench crates/trace-py apps
	.venv/bin/mypy
	$(PYTHON) scripts/check_layers.py
	$(PYTHON) scripts/check_features.py
	$(PYTHON) scripts/check_copies.py
	$(PYTHON) scripts/check_cycles.py
	$(PYTHON) scripts/check_words.py
	$(PYTHON) scripts/check_core.py

docs: setup-test build ## builds the documentation site into build/docs, to be read offline
	NO_MKDOCS_2_WARNING=true .venv/bin/mkdocs build --quiet
	@echo "docs: build/docs/index.html"

bench: setup-test build ## measures against peers; see bench/README.md
	scripts/setup --bench
	$(PYTHON) bench/run.py

clean: ## removes what was built, not what was measured
	rm -rf build .venv $(dir $(PROTO_PYTHON)) && cargo clean
