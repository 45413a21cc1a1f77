"""Apache Kafka's tools for topics, records, groups and load, unchanged; their outputs."""

import json
from collections import Counter
from pathlib import Path

import pytest

from clients.marks import long
from clients.programs import kafka_tool
from clients.test_clients import committed
from support.clients import create_topic, plain_producer, read_all, send, transactional_producer
from support.samples import sampled

SECONDS_MAX = 240.0
TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"

pytestmark = [pytest.mark.java, pytest.mark.timeout(3 * SECONDS_MAX)]

protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def run(tool: str, servers: str, *arguments: str, text: str = "", exit_code: int = 0) -> str:
    return kafka_tool(
        tool, "--bootstrap-server", servers, *arguments, text=text, exit_code=exit_code
    )


def rows(table: str, start: str) -> list[dict[str, str]]:
    """The rows of a table of kafka-consumer-groups below the header that begins so."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    header = next(line for line in lines if line[0] == start)
    below = lines[lines.index(header) + 1 :]
    return [dict(zip(header, line, strict=False)) for line in below]


def test_kafka_topics_creates_describes_grows_and_deletes(servers: str, name: str) -> None:
    settings = ("--partitions", "3", "--config", "retention.ms=12345")
    assert f"Created topic {name}." in run(TOPICS, servers, "--create", "--topic", name, *settings)
    again = run(TOPICS, servers, "--create", "--topic", name, exit_code=1)
    assert f"Topic '{name}' already exists." in again
    run(TOPICS, servers, "--create", "--topic", name, "--if-not-exists")
    run(TOPICS, servers, "--alter", "--topic", name, "--partitions", "5")
    told = run(TOPICS, servers, "--describe", "--topic", name).splitlines()
    assert "PartitionCount: 5" in told[0]
    assert "retention.ms=12345" in told[0]
    assert len(told) == 6
    assert name in run(TOPICS, servers, "--list").split()
    run(TOPICS, servers, "--delete", "--topic", name)
    while name in run(TOPICS, servers, "--list").split():
        continue  # a controller answers before the broker knows it


@protocols
def test_the_console_consumer_prints_records_of_the_console_producer(
    protocol: str, servers: str, name: str
) -> None:
    create_topic(servers, name, 2)
    as_parsed = [
        word
        for setting in ("parse.key=true", "parse.headers=true", "headers.delimiter=|")
        for word in ("--reader-property", setting)
    ]
    lines = "h:1|k1\tone\nh:2|k2\ttwo\nh:3|k3\tthree\n"
    run(f"{TOOLS}.ConsoleProducer", servers, "--topic", name, *as_parsed, text=lines)
    printed = [
        word
        for setting in ("print.key=true", "print.headers=true", "key.separator==")
        for word in ("--formatter-property", setting)
    ]
    told = run(
        *(CONSUMER, servers, "--topic", name, "--group", name, "--from-beginning"),
        *("--max-messages", "3", "--command-property", f"group.protocol={protocol}", *printed),
    )
    assert sorted(told.split()) == ["h:1=k1=one", "h:2=k2=two", "h:3=k3=three"]
    assert sum(committed(servers, name).values()) == 3
    offsets = run(f"{TOOLS}.GetOffsetShell", servers, "--topic", name).split()
    assert sum(int(line.split(":")[2]) for line in offsets) == 3


@protocols
def test_kafka_consumer_groups_describes_resets_and_deletes(
    protocol: str, servers: str, name: str
) -> None:
    create_topic(servers, name)
    send(plain_producer(servers), name, [f"v{n}".encode() for n in range(10)])
    run(
        *(CONSUMER, servers, "--topic", name, "--group", name, "--from-beginning"),
        *("--max-messages", "10", "--command-property", f"group.protocol={protocol}"),
    )
    group = ("--group", name)
    resets = {
        ("--shift-by", "-3"): 7,
        ("--to-offset", "4"): 4,
        ("--to-latest",): 10,
        ("--to-earliest",): 0,
        ("--by-duration", "PT0S"): 10,
        ("--to-datetime", "2020-01-01T00:00:00.000"): 0,
    }
    for how, wanted in sampled(list(resets.items())):
        reset = ("--reset-offsets", *group, "--topic", name, *how)
        (planned,) = rows(run(GROUPS, servers, *reset, "--dry-run"), "GROUP")
        assert (planned["TOPIC"], planned["NEW-OFFSET"]) == (name, str(wanted))
        run(GROUPS, servers, *reset, "--execute")
        assert committed(servers, name) == {0: wanted}
    (described,) = rows(run(GROUPS, servers, "--describe", *group), "GROUP")
    assert described["LOG-END-OFFSET"] == "10"
    assert described["LAG"] == str(10 - int(described["CURRENT-OFFSET"]))
    (state,) = rows(run(GROUPS, servers, "--describe", *group, "--state"), "GROUP")
    assert "Empty" in state.values()
    run(GROUPS, servers, "--delete-offsets", *group, "--topic", name)
    assert committed(servers, name) == {}
    listed = run(GROUPS, servers, "--list").split()
    if name in listed:  # Kafka drops a classic group with its last offset
        assert "was successful" in run(GROUPS, servers, "--delete", *group)
    assert name not in run(GROUPS, servers, "--list").split()


@protocols
def test_P1_verifiable_consumer_reads_each_record_of_verifiable_producer_once(
    protocol: str, servers: str, name: str
) -> None:
    count = 5000
    create_topic(servers, name, 4)
    told = run(
        f"{TOOLS}.VerifiableProducer", servers, "--topic", name, "--max-messages", str(count)
    )
    sent = [json.loads(line) for line in told.splitlines()]
    acknowledged = [each["value"] for each in sent if each["name"] == "producer_send_success"]
    assert Counter(acknowledged) == Counter(str(n) for n in range(count))
    told = run(
        *(f"{TOOLS}.VerifiableConsumer", servers, "--topic", name, "--group-id", name),
        *("--max-messages", str(count), "--verbose", "--group-protocol", protocol),
    )
    seen = [json.loads(line) for line in told.splitlines()]
    read = [each["value"] for each in seen if each["name"] == "record_data"]
    assert Counter(read) == Counter(acknowledged)
    assert sum(committed(servers, name).values()) == count


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(("--group-mode", "--use-group-metadata"), id="group"),
        pytest.param((), marks=long, id="assigned"),
    ],
)
def test_P1_P3_transactional_message_copier_copies_each_record_once_over_aborts(
    mode: tuple[str, ...], servers: str, name: str
) -> None:
    count = 2000
    create_topic(servers, name)
    create_topic(servers, f"{name}-out")
    values = [f"v{n}".encode() for n in range(count)]
    send(plain_producer(servers), name, values)
    told = kafka_tool(
        *(f"{TOOLS}.TransactionalMessageCopier", "--broker-list", servers, *mode),
        *("--input-topic", name, "--input-partition", "0", "--output-topic", f"{name}-out"),
        *("--transactional-id", name, "--consumer-group", name, "--transaction-size", "100"),
        *("--enable-random-aborts", "--max-messages", str(count)),
    )
    assert json.loads(told.splitlines()[-1])["remaining"] == 0
    assert read_all(servers, f"{name}-out") == values
    assert committed(servers, name) == {0: count}


@long
def test_the_perf_tools_count_their_records(servers: str, name: str) -> None:
    create_topic(servers, name)
    told = run(
        *(f"{TOOLS}.ProducerPerformance", servers, "--topic", name, "--num-records", "20000"),
        *("--throughput", "-1", "--record-size", "100", "--transactional-id", name),
        *("--transaction-duration-ms", "100"),
    )
    assert told.splitlines()[-1].startswith("20000 records sent")
    assert len(read_all(servers, name)) == 20_000
    reading = ("--topic", name, "--num-records", "20000", "--hide-header")
    told = run(f"{TOOLS}.ConsumerPerformance", servers, *reading)
    assert int(told.splitlines()[-1].split(",")[4]) >= 20_000


@long
def test_the_tools_of_a_cluster_tell_the_same_of_both_brokers(
    servers: str, name: str, tmp_path: Path
) -> None:
    """`tests/interop` has more of each on txn."""
    create_topic(servers, name)
    send(plain_producer(servers), name, [b"a", b"b", b"c"])

    configs = f"{TOOLS}.ConfigCommand"
    for entity, change in (
        (("--topic", name), "retention.ms=777"),
        (("--group", name), "consumer.session.timeout.ms=50000"),
        (("--client-metrics", name), "interval.ms=60000"),
        (("--broker", "1"), "log.retention.ms=123456789"),
    ):
        run(configs, servers, "--alter", *entity, "--add-config", change)
        assert change in run(configs, servers, "--describe", *entity)
        run(configs, servers, "--alter", *entity, "--delete-config", change.split("=")[0])
        assert change not in run(configs, servers, "--describe", *entity)

    producer = transactional_producer(servers, name)
    producer.begin_transaction()
    send(producer, name, [b"open"])
    transactions = f"{TOOLS}.TransactionsCommand"
    listed = run(transactions, servers, "list", "--transactional-id-pattern", name).splitlines()
    assert [line.split()[0] for line in listed[1:]] == [name]
    described = run(transactions, servers, "describe", "--transactional-id", name)
    assert f"{name}-0" in described
    assert "Ongoing" in described
    of_producers = ("describe-producers", "--topic", name, "--partition", "0")
    assert len(run(transactions, servers, *of_producers).splitlines()) >= 2
    producer.abort_transaction()

    file = tmp_path / "offsets.json"
    partitions = [{"topic": name, "partition": 0, "offset": 2}]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    told = run(f"{TOOLS}.DeleteRecordsCommand", servers, "--offset-json-file", str(file))
    assert f"partition: {name}-0\tlow_watermark: 2" in told
    assert read_all(servers, name) == [b"c"]
    earliest = ("--topic", name, "--time", "earliest")
    assert run(f"{TOOLS}.GetOffsetShell", servers, *earliest).split() == [f"{name}:0:2"]

    told = run(f"{TOOLS}.LogDirsCommand", servers, "--describe", "--topic-list", name)
    (directory,) = json.loads(told.splitlines()[-1])["brokers"][0]["logDirs"]
    assert [each["partition"] for each in directory["partitions"]] == [f"{name}-0"]

    features = run(f"{TOOLS}.FeatureCommand", servers, "describe")
    levels = {
        words[1]: words[words.index("FinalizedVersionLevel:") + 1]
        for words in (line.split() for line in features.splitlines())
    }
    assert (levels["group.version"], levels["transaction.version"]) == ("1", "2")
    status = run(f"{TOOLS}.MetadataQuorumCommand", servers, "describe", "--status")
    assert "LeaderId:" in status
