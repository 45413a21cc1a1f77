# Every chore of txn. Each does all the set-up that it needs; Spark and Kafka itself need a JDK.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= python3
JOBS   ?= 4
CORE   := python/txn/_core.abi3.so
SMALL  := $(addprefix sim/test_,simulation.py regressions.py clock.py replicas.py)
WHOLE_TREE := $(addprefix test_,layers.py private_names.py)
QUICK  := $(addprefix tests/,$(SMALL) model unit golden $(WHOLE_TREE))
RUST   := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
PATTERNS_FLAGS := $(if $(STRIKES),--strikes $(STRIKES)) $(if $(SEED),--seed $(SEED))
export CARGO_TERM_COLOR ?= auto
export STRICT
unexport PYTHONDONTWRITEBYTECODE  # a test starts thousands of Pythons; each would compile all of txn anew
ifndef EXPLORE
export PROPTEST_RNG_SEED ?= 7
endif

.DEFAULT_GOAL := help
.PHONY: help setup build browser screenshots quick test test-rust test-python soak check check-rust check-python fmt bench bench-clients bench-spark micro black-box clients load crash-everywhere long-spark large-spark hostile mutate fuzz proofs patterns spark-versions demo docs wheel clean prerequisites jdk fuzzers

help:  ## list every chore
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.built  ## make .venv with everything installed; leaves .venv/bin/txn

build: setup  ## build the Rust extension and install txn in place

demo: jdk setup  ## flights through Spark and back, killed five times, every row checked
	$(BIN)/txn demo

browser:  ## install the chromium that tests of the console drive, by apt; needs root
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

screenshots: setup browser  ## the pictures of docs/console.md, from a broker at 127.0.0.1:9092; look at each
	PYTHONPATH=tests $(BIN)/python -m console.pictures $(WHERE)

quick: setup  ## for every edit, 2 minutes: rules, models, bytes, layers, a small simulation; no peers
	cargo test --quiet --workspace --exclude txn-py --lib
	SEEDS=500 $(BIN)/python -m pytest -q --processes $(JOBS) $(QUICK)

test: jdk test-rust test-python  ## all tests

test-rust: prerequisites  ## tests of the Rust crates
	cargo test --quiet --workspace --exclude txn-py

test-python: jdk setup  ## tests of everything, through real clients; a failed one runs once more (STRICT=1: not)
	test -d tests/unit/__pycache__ || $(BIN)/python -m pytest --collect-only -qq tests examples >/dev/null & \
		PYTHONPATH=tests $(BIN)/python -m support.quick_java; code=$$?; wait; exit $$code  # compiled once, for all workers
	$(BIN)/python tests/rerun.py --processes $(JOBS) --durations=15 --file-times tests examples

soak: setup  ## the simulation on all cores, from a new seed on: SEEDS=… how many, MINUTES=… how long (SOAK=--json: a summary)
	@PYTHONPATH=tests $(BIN)/python -m sim $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FIRST),--first $(FIRST)) $(SOAK)

check: check-rust check-python  ## formatting, lints and types, Rust and Python at once with -j2

check-rust: prerequisites
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings

check-python: setup
	$(BIN)/ruff format --check python tests benches examples
	$(BIN)/ruff check python tests benches examples
	$(BIN)/mypy
	$(BIN)/mypy tests benches
	$(BIN)/mypy examples/spark
	$(BIN)/python -m mypy.stubtest txn._core --ignore-disjoint-bases --allowlist tests/stubtest-allowlist.txt

fmt: setup  ## format Rust and Python, and write the index of APIs
	cargo fmt --all
	$(BIN)/python tests/api_index.py
	$(BIN)/ruff check --fix python tests benches examples
	$(BIN)/ruff format python tests benches examples

bench: jdk setup  ## txn beside Apache Kafka 4.4, then clients and Spark, about 75 minutes (BENCH=--quick: no Spark, 7; KAFKA_VERSION=4.2.0)
	cargo build --quiet --release --package txn-bench
	$(BIN)/python -m benches.compare $(BENCH)
	$(if $(BENCH),,$(MAKE) bench-clients bench-spark)

bench-clients: jdk setup  ## the native engine beside confluent-kafka, on txn and on Kafka, about 15 minutes (CLIENTS=--quick)
	$(BIN)/python -m benches.clients $(CLIENTS)

bench-spark: jdk setup  ## format("txn") beside Spark's own connector: rows a second, a tiny micro-batch
	$(BIN)/python -m benches.spark_rows
	$(BIN)/python -m benches.spark

micro: setup  ## micro-benchmarks, saved under .benchmarks to compare two commits
	$(BIN)/python -m pytest benches --benchmark-only --benchmark-autosave

black-box: setup  ## real clients against a broker that is harmed (SECONDS=600 SEED=7 BLACK_BOX="--target kafka")
	PYTHONPATH=tests $(BIN)/python -m harnesses.black_box $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(BLACK_BOX)

proofs: jdk setup  ## the long proofs in full: a stop at every operation of a commit, each Spark job killed, new cases
	EVERY=1 EXPLORE=1 $(BIN)/python -m pytest --processes $(JOBS) tests/model tests/unit tests/crash/test_sigkill_maintenance.py
	EVERY=1 EXPLORE=1 $(BIN)/python -m pytest --processes $(JOBS) tests/sim/test_crash_points.py tests/crash/test_real_crash_points.py tests/interop/test_java_client.py tests/spark/kill tests/spark/test_secured.py tests/spark/test_connect.py tests/spark/long tests/console/test_in_a_browser.py

crash-everywhere: setup  ## the programs of examples/, stopped in every way at every step (STOPS="kill after,fence")
	PYTHONPATH=tests $(BIN)/python -m kit.everywhere $(JOBS) $(if $(STOPS),"$(STOPS)")

hostile: setup  ## every attack and every damage, for long (SECONDS=600 for each attack, SEED=7)
	HOSTILE_EVERY=1 $(if $(SECONDS),HOSTILE_SECONDS=$(SECONDS)) $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest -s tests/hostile tests/damage/test_damaged_directories.py

mutate: setup  ## mutated requests by the million, to real brokers (REQUESTS=100000000 SEED=7)
	cargo build --quiet --release --package txn-fuzz --bins
	PYTHONPATH=tests $(BIN)/python -m hostile.mutate $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(SEED),--seed $(SEED))

fuzz: fuzzers  ## libFuzzer on every target, one after the other (MINUTES=10 each, TARGET=… one alone)
	cargo build --quiet --release --package txn-fuzz --bins
	rust/fuzz/run $(or $(MINUTES),10) $(TARGET)

patterns: jdk setup  ## the programs of examples/spark, killed again and again on txn, on Kafka and over SASL_SSL (STRIKES=6 SEED=7)
	$(BIN)/python tests/spark/patterns/main.py $(PATTERNS_FLAGS)
	$(BIN)/python tests/spark/patterns/main.py $(PATTERNS_FLAGS) --broker kafka
	$(BIN)/python tests/spark/patterns/main.py $(PATTERNS_FLAGS) --broker secured stream_join windows

long-spark: jdk setup  ## flights through Spark, 20 years an hour, with a kill a minute (MINUTES=60 SEED=7 LONG=--json)
	$(BIN)/python tests/spark/long/main.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(LONG)

large-spark: jdk setup  ## a batch of gigabytes, 1,000 partitions read, 5,000 written by a task (GIB=8 LARGE=--json)
	$(BIN)/python tests/spark/large/main.py $(if $(GIB),--gib $(GIB)) $(LARGE)

spark-versions: jdk setup  ## the parts of format("txn") that work with PySpark 4.0 to 4.3, as docs/spark.md says
	@for each in 4.0 4.1 4.2 4.3; do \
		$(BIN)/python -m pip install --quiet --upgrade --no-deps --target target/pyspark/$$each "pyspark~=$$each.0" || exit 1; \
		PYTHONPATH=target/pyspark/$$each $(BIN)/python tests/spark/versions.py || failed=1; \
	done; test -z "$$failed"

peers: setup  ## tests that other people wrote for their own clients: needs Go (SUITES="kafka-go" PEERS="--target kafka")
	PYTHONPATH=tests $(BIN)/python -m harnesses.suites $(SUITES) $(PEERS)

clients: jdk setup  ## other people's clients, Streams, Connect and Kafka's tools, on txn and on Apache Kafka
	EVERY=1 $(BIN)/python -m pytest --processes $(JOBS) tests/clients tests/interop/test_java_client.py

load: jdk setup  ## 5,000 connections, 200 groups that churn under each protocol, on txn and on Kafka (SECONDS=600 LOAD="--target txn")
	PYTHONPATH=tests $(BIN)/python -m harnesses.group_load $(if $(SECONDS),--seconds $(SECONDS)) $(LOAD)

docs: setup  ## the documentation as a site, target/docs/html; every link and anchor is checked
	$(BIN)/python -m txn.manual target/docs/pages
	$(BIN)/python -m sphinx -q -W -n --keep-going -c docs target/docs/pages target/docs/html
	@echo "the site begins at target/docs/html/index.html"

wheel: setup  ## build the wheel into dist/
	$(BIN)/maturin build --release --out dist

clean:  ## remove what was built and installed
	rm -rf $(VENV) target dist $(CORE) .mypy_cache .ruff_cache .pytest_cache .hypothesis

prerequisites:
	@command -v $(PYTHON) >/dev/null || { echo "txn needs Python 3.11 or newer: install python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "txn needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Install one and run: make PYTHON=python3.11 …" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "txn needs Rust: install cargo, for example with rustup" >&2; exit 1; }

fuzzers:
	@cargo fuzz --version >/dev/null 2>&1 || { echo "make fuzz needs cargo-fuzz: cargo install cargo-fuzz --locked" >&2; exit 1; }
	@cargo +nightly --version >/dev/null 2>&1 || { echo "make fuzz needs a nightly Rust beside the stable one: rustup toolchain install nightly" >&2; exit 1; }

jdk:
	@command -v java >/dev/null || { echo "Spark and the tests need Java: install a JDK, 17 or newer" >&2; exit 1; }
	@java -version 2>&1 | awk -F '[".]' '/version/{exit !($$2 < 17)}' && { echo "Spark and the tests need a JDK, 17 or newer; this is $$(java -version 2>&1 | head -1)" >&2; exit 1; } || true

$(VENV)/.installed: pyproject.toml | prerequisites
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet 'maturin>=1.9,<2'
	touch $@

$(VENV)/.built: $(VENV)/.installed $(RUST)
	$(BIN)/maturin develop --release --extras dev --quiet
	touch $@
