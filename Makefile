# Everything works after nothing but a clone; `make help` says what there is.

# Further arguments of `make demo` and `make bench`, such as ARGS='--limits 10,50'.
ARGS ?=
# A folder of real consensuses and server descriptors, for `make bench`. It need not be there.
DATA ?= ../shared/data
# The program of benchmarks.
LAB = $(or $(CARGO_TARGET_DIR),target)/release/flashflow-lab

# Names the Rust that is needed.
MANIFEST = Cargo.toml
test-all test-cluster: MANIFEST = crates/researchers/archive/Cargo.toml

.PHONY: help deps cargo demo test test-all test-cluster test-python quick lint bench release tor

help:
	@echo 'make demo   measure a private Tor network on this machine; options: make demo ARGS="--limits 10,50"'
	@echo 'make test   format, lints, house rules, documentation; all tests but those of the next line'
	@echo 'make test-all  floods, long waits for tor, separate networks, the query engine of archives'
	@echo 'make test-cluster  of these, only errors and SQL queries of archives on a cluster on loopback'
	@echo 'make quick  format, lints, house rules, unit, property and virtual-time tests: a minute after a build'
	@echo 'make lint   format, lints and house rules only'
	@echo 'make test-python  tests of the Python package, on files that the programs write'
	@echo 'make tor    C tor with patches/tor-0.4.9, which can be measured by echo: prints its path, for FLASHFLOW_TOR'
	@echo 'make release      tarball, Debian packages and checksums, in target/dist'
	@echo 'make bench  what a measurer, an echo target, a relay and a client cost; how fast documents are parsed, with DATA=FOLDER'
	@echo 'make deps   install the Debian packages that are missing (tor, a C compiler); done by the others, too'

deps: cargo
	@sh scripts/install-deps

cargo:
	@command -v cargo >/dev/null || { \
	  echo 'There is no cargo in PATH. Install stable Rust from https://rustup.rs :' >&2; \
	  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2; \
	  echo 'then open a new shell, or run: . "$$HOME/.cargo/env"' >&2; exit 1; }
	@needed=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' $(MANIFEST)); has=$$(rustc --version | cut -d ' ' -f 2); \
	printf '%s\n' "$$needed" "$$has" | sort -CV || { \
	  echo "Rust $$needed or newer is needed, and this is $$has. With rustup: rustup update stable" >&2; exit 1; }

# The development build optimises what carries cells, needs a quarter less processor time than a release, and is the tests' build as well.
demo: deps
	cargo build --locked
	$(or $(CARGO_TARGET_DIR),target)/debug/flashflow-lab demo $(ARGS)

test: deps
	@scripts/test

test-all: deps
	@scripts/test --all

test-cluster: deps
	@scripts/test-cluster

quick: deps
	@scripts/test --quick

lint: deps
	@scripts/lint

test-python: deps
	@scripts/test-python

release: deps
	@scripts/release

# Needs neither Rust nor the packages of the others.
tor:
	@scripts/patched-tor

bench: deps
	cargo build --release --locked
	$(LAB) bench measurer $(ARGS)
	$(LAB) bench echo $(ARGS)
	$(LAB) bench relay $(ARGS)
	$(LAB) bench client $(filter --json,$(ARGS))
	@files=$$(ls $(DATA)/consensus/*-consensus $(DATA)/descriptors/*-server-descriptors 2>/dev/null); \
	if [ -n "$$files" ]; then \
	  cargo run --release --locked -p flashflow-netdoc --example parse_speed -- $$files; \
	else \
	  echo 'No documents in $(DATA): the speed of parsing was not measured. See docs/benchmarks.md.'; \
	fi
