"""Settings are described, altered and kept as Kafka does it, and an alteration counts at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

import txn
from support.brokers import BrokerProcess
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.served import versions_of
from support.wire_client import ask
from txn.clock import now_ms
from txn.config import HOUR_MS
from txn.wire.api_keys import ApiKey

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN_TOPIC, INVALID_TOPIC, UNSUPPORTED_VERSION, INVALID_CONFIG, INVALID_REQUEST = (
    3,
    17,
    35,
    40,
    42,
)
SOURCE_TOPIC, SOURCE_DEFAULT = 1, 5


def a_resource(kind: int, name: str, *entries: tuple[str, int, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": None,
        "configs": [
            {"name": setting, "config_operation": operation, "value": value}
            for setting, operation, value in entries
        ],
    }


def described(servers: str, kind: int, name: str, version: int = 4) -> dict[str, Any]:
    """A resource's settings, by name."""
    answer = ask(
        servers,
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[a_resource(kind, name)],
        include_synonyms=True,
        include_documentation=True,
    )
    assert int(answer.results[0].error_code) == 0
    return {entry.name: entry for entry in answer.results[0].configs}


def altered(servers: str, *resources: dict[str, Any], validate_only: bool = False) -> Any:
    """Send IncrementalAlterConfigs; return the (error code, message) of each resource."""
    answer = ask(
        servers,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=resources,
        validate_only=validate_only,
    )
    return [(int(entry.error_code), entry.error_message) for entry in answer.responses]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="module")
def servers(data: Path) -> Iterator[str]:
    """One broker for the whole module; every test has topics of its own."""
    with txn.Broker(data, durability="process") as broker:
        create_topic(broker.bootstrap_servers, "bad-input")
        yield broker.bootstrap_servers


# ---------------------------------------------------------------- every version, well and ill


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_CONFIGS))
def test_describe_configs_tells_settings_or_says_why_not(servers: str, version: int) -> None:
    create_topic(servers, f"described-{version}", retention_ms="5")
    answer = ask(
        servers,
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[
            a_resource(TOPIC, f"described-{version}") | {"configuration_keys": ["retention.ms"]},
            a_resource(BROKER, "1") | {"configuration_keys": ["node.id"]},
            a_resource(BROKER, ""),
            a_resource(TOPIC, "nobody"),
            a_resource(TOPIC, "a/b"),
            a_resource(BROKER, "7"),
            a_resource(BROKER, "x"),
            a_resource(CLIENT_METRICS, "m"),
            a_resource(GROUP, "g"),
            a_resource(GROUP, ""),
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    assert [int(result.error_code) for result in answer.results] == [
        *(0, 0, 0, UNKNOWN_TOPIC, INVALID_TOPIC),
        *(INVALID_REQUEST, INVALID_REQUEST, 0),
        *(0, INVALID_REQUEST),
    ]
    (entry,) = answer.results[0].configs
    assert (entry.name, entry.value, entry.config_source) == ("retention.ms", "5", SOURCE_TOPIC)
    assert [synonym.name for synonym in entry.synonyms] == ["retention.ms"]
    assert (getattr(entry, "documentation", None) is not None) == (version >= 3)


@pytest.mark.parametrize("version", versions_of(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_incremental_alter_configs_alters_or_says_why_not(servers: str, version: int) -> None:
    topic = f"altered-{version}"
    create_topic(servers, topic, retention_ms="5", flush_ms="6")
    answer = ask(
        servers,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        version,
        resources=[
            a_resource(
                TOPIC,
                topic,
                ("retention.ms", SET, "7"),
                ("cleanup.policy", APPEND, "compact"),
                ("flush.ms", DELETE, None),
            ),
            a_resource(TOPIC, "nobody", ("retention.ms", SET, "7")),
            a_resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "7")),
        ],
        validate_only=False,
    )
    codes = [int(entry.error_code) for entry in answer.responses]
    found = described(servers, TOPIC, topic)
    assert codes == [0, UNKNOWN_TOPIC, INVALID_CONFIG]
    assert found["retention.ms"].value == "7"
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["flush.ms"].config_source == SOURCE_DEFAULT


@pytest.mark.parametrize("version", versions_of(ApiKey.ALTER_CONFIGS))
def test_alter_configs_replaces_what_a_topic_has_or_says_why_not(
    servers: str, version: int
) -> None:
    topic = f"replaced-{version}"
    create_topic(servers, topic, retention_ms="5", flush_ms="6")
    answer = ask(
        servers,
        ApiKey.ALTER_CONFIGS,
        version,
        resources=[
            a_resource(TOPIC, topic, ("retention.ms", SET, "7")),
            a_resource(TOPIC, "nobody", ("retention.ms", SET, "7")),
            a_resource(BROKER, "1", ("num.partitions", SET, "7")),
        ],
        validate_only=False,
    )
    codes = [int(entry.error_code) for entry in answer.responses]
    found = described(servers, TOPIC, topic)
    assert codes == [0, UNKNOWN_TOPIC, INVALID_REQUEST]
    assert (found["retention.ms"].value, found["flush.ms"].config_source) == ("7", SOURCE_DEFAULT)


@pytest.mark.parametrize("version", versions_of(ApiKey.LIST_CONFIG_RESOURCES))
def test_list_config_resources_names_topics_and_the_broker(servers: str, version: int) -> None:
    create_topic(servers, f"listed-{version}")
    answer = ask(servers, ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=())
    named = {(getattr(e, "resource_type", 16), e.resource_name) for e in answer.config_resources}
    assert ({(TOPIC, f"listed-{version}"), (BROKER, "1")} <= named) == (version >= 1)
    assert bool(named) == (version >= 1)


def test_list_config_resources_of_an_unknown_type_is_refused(servers: str) -> None:
    answer = ask(servers, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=(TOPIC, 99))
    assert (int(answer.error_code), answer.config_resources) == (UNSUPPORTED_VERSION, ())


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_LOG_DIRS))
def test_describe_log_dirs_tells_sizes_and_leaves_out_what_is_unknown(
    servers: str, data: Path, version: int
) -> None:
    create_topic(servers, f"sized-{version}", partitions=2)
    send(plain_producer(servers), f"sized-{version}", [b"v" * 1000], partition=1)
    wanted = [
        {"topic": f"sized-{version}", "partitions": (0, 1, 9)},
        {"topic": "nobody", "partitions": (0,)},
    ]
    answer = ask(servers, ApiKey.DESCRIBE_LOG_DIRS, version, topics=wanted)
    (directory,) = answer.results
    (topic,) = directory.topics
    on_disk = (data / f"sized-{version}-1" / f"{0:020}.log").stat().st_size
    assert (int(directory.error_code), directory.log_dir) == (0, str(data))
    assert [(p.partition_index, p.partition_size) for p in topic.partitions] == [
        (0, 0),
        (1, on_disk),
    ]
    assert getattr(directory, "usable_bytes", 1) > 0


def test_describe_log_dirs_of_everything_names_every_topic(servers: str) -> None:
    create_topic(servers, "one-of-all")
    answer = ask(servers, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    assert "one-of-all" in {topic.name for topic in answer.results[0].topics}


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("entries", "code", "message"),
    [
        ([("retention.msec", SET, "5")], INVALID_CONFIG, "did you mean retention.ms?"),
        ([("cleanup.policy", APPEND, "")], INVALID_CONFIG, "Invalid value delete, for"),
        (
            [("retention.ms", SET, "soon")],
            INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: ",
        ),
        ([("retention.ms", SET, "-2")], INVALID_CONFIG, "a whole number from -1"),
        ([("retention.ms", APPEND, "5")], INVALID_CONFIG, "because its type is not LIST"),
        ([("remote.storage.enable", SET, "true")], INVALID_CONFIG, "it takes false"),
        (
            [("min.compaction.lag.ms", SET, "6"), ("max.compaction.lag.ms", SET, "5")],
            INVALID_CONFIG,
            "min.compaction.lag.ms (6) > max.compaction.lag.ms",
        ),
        ([("retention.ms", SET, None)], INVALID_REQUEST, "a value is missing: retention.ms"),
        ([("retention.ms", 9, "5")], INVALID_REQUEST, "there is no operation 9"),
        (
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            INVALID_REQUEST,
            "twice: retention.ms",
        ),
    ],
)
def test_a_bad_alteration_of_a_topic_is_refused_and_changes_nothing(
    servers: str, entries: list[Any], code: int, message: str
) -> None:
    before = described(servers, TOPIC, "bad-input")
    refused = altered(servers, a_resource(TOPIC, "bad-input", ("flush.ms", SET, "1"), *entries))
    assert refused[0][0] == code
    assert message in refused[0][1]
    assert described(servers, TOPIC, "bad-input") == before


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        (("message.max.byte", SET, "5"), INVALID_CONFIG, "did you mean message.max.bytes?"),
        (("message.max.bytes", SET, "x"), INVALID_REQUEST, "cannot be 'x'"),
        (("num.partitions", SET, "5"), INVALID_REQUEST, "not to be changed while"),
        (("log.dirs", SET, "/tmp/x"), INVALID_REQUEST, "not to be changed while"),
        (("log.cleanup.policy", APPEND, ""), INVALID_REQUEST, "cannot be 'delete,'"),
        (("leader.replication.throttled.rate", SET, "-1"), INVALID_REQUEST, "cannot be '-1'"),
        (("listener.name.s.ssl.client.auth", SET, "none"), INVALID_REQUEST, "not to be changed"),
    ],
)
def test_a_bad_alteration_of_the_broker_is_refused_and_changes_nothing(
    servers: str, entry: Any, code: int, message: str
) -> None:
    before = described(servers, BROKER, "1")
    refused = altered(servers, a_resource(BROKER, "1", ("log.retention.ms", SET, "1"), entry))
    assert refused[0][0] == code
    assert message in refused[0][1]
    assert described(servers, BROKER, "1") == before


def test_an_unknown_name_that_is_deleted_takes_nothing_from_what_is_beside_it(
    servers: str,
) -> None:
    """A tool's request to restore `retention.ms` was refused for a name that Kafka passes over."""
    create_topic(servers, "restored")
    for kind, name, setting in ((TOPIC, "restored", "retention.ms"), (BROKER, "1", "log.roll.ms")):
        entries = ("no.such", DELETE, None), (setting, SET, "77777")
        assert altered(servers, a_resource(kind, name, *entries)) == [(0, None)]
        assert described(servers, kind, name)[setting].value == "77777"
    assert altered(servers, a_resource(BROKER, "1", ("log.roll.ms", DELETE, None))) == [(0, None)]


def test_throttles_of_the_broker_are_set_described_and_deleted(servers: str) -> None:
    rates = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    for name in ("1", ""):
        before = described(servers, BROKER, name)
        set_all = a_resource(BROKER, name, *((rate, SET, "1000") for rate in rates))
        assert altered(servers, set_all) == [(0, None)]
        assert [described(servers, BROKER, name)[rate].value for rate in rates] == ["1000"] * 3
        delete_all = a_resource(BROKER, name, *((rate, DELETE, None) for rate in rates))
        assert altered(servers, delete_all) == [(0, None)]
        assert described(servers, BROKER, name) == before


def test_a_resource_named_twice_is_refused_and_others_are_altered(servers: str) -> None:
    create_topic(servers, "named-once")
    create_topic(servers, "named-twice")
    answers = altered(
        servers,
        a_resource(TOPIC, "named-twice", ("retention.ms", SET, "5")),
        a_resource(TOPIC, "named-once", ("retention.ms", SET, "5")),
        a_resource(TOPIC, "named-twice", ("retention.ms", SET, "6")),
    )
    assert [code for code, _ in answers] == [INVALID_REQUEST, 0, INVALID_REQUEST]
    assert described(servers, TOPIC, "named-once")["retention.ms"].value == "5"
    assert described(servers, TOPIC, "named-twice")["retention.ms"].config_source == SOURCE_DEFAULT


def test_what_is_only_to_be_validated_changes_nothing(servers: str) -> None:
    create_topic(servers, "validated")
    before = described(servers, TOPIC, "validated")
    answers = altered(
        servers, a_resource(TOPIC, "validated", ("retention.ms", SET, "5")), validate_only=True
    )
    assert answers == [(0, None)]
    assert described(servers, TOPIC, "validated") == before


def test_an_internal_topic_stays_compacted(servers: str) -> None:
    plain = plain_producer(servers, transactional_id="makes-the-topic")
    plain.init_transactions(WAIT_S)
    ((code, message),) = altered(
        servers, a_resource(TOPIC, "__transaction_state", ("cleanup.policy", SET, "delete"))
    )
    assert code == INVALID_CONFIG
    assert "its cleanup.policy is compact" in message


# ---------------------------------------------------------------- an alteration counts at once


def alter(servers: str, kind: ResourceType, name: str, **settings: str) -> None:
    """Set settings by confluent-kafka."""
    entries = [
        ConfigEntry(setting.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for setting, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def send_at(servers: str, topic: str, timestamp_ms: int) -> None:
    """Produce a record with a time of its own. Raises KafkaException."""
    failed: list[KafkaError] = []

    def settle(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = plain_producer(servers)
    producer.produce(topic, b"v", timestamp=timestamp_ms, on_delivery=settle)
    assert producer.flush(WAIT_S) == 0
    if failed:
        raise KafkaException(failed[0])


def first_message(servers: str, topic: str, offset: int) -> Any:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, offset)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    return message


def test_max_message_bytes_altered_counts_for_the_next_batch(servers: str) -> None:
    create_topic(servers, "small-batches")
    producer = plain_producer(servers)
    alter(servers, ResourceType.TOPIC, "small-batches", max_message_bytes="500")
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        send(producer, "small-batches", [b"v" * 1000])
    alter(servers, ResourceType.TOPIC, "small-batches", max_message_bytes="2000")
    assert send(producer, "small-batches", [b"v" * 1000]) == [0]


def test_message_timestamp_type_altered_counts_for_the_next_batch(servers: str) -> None:
    create_topic(servers, "stamped")
    producer = plain_producer(servers)
    send(producer, "stamped", [b"a"])
    alter(servers, ResourceType.TOPIC, "stamped", message_timestamp_type="LogAppendTime")
    send(producer, "stamped", [b"b"])
    kinds = [first_message(servers, "stamped", offset).timestamp()[0] for offset in (0, 1)]
    assert [kind == TIMESTAMP_LOG_APPEND_TIME for kind in kinds] == [False, True]


def test_a_topic_turned_into_a_compacted_one_takes_only_keys_and_is_compacted(
    tmp_path: Path,
) -> None:
    with txn.Broker(tmp_path / "data", properties={"log.cleaner.backoff.ms": 1}) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "kept", internal_segment_bytes="100")
        producer = plain_producer(servers)
        for number in range(10):
            producer.produce("kept", key=b"k", value=b"%d" % number, partition=0)
            assert producer.flush(WAIT_S) == 0
        alter(
            servers,
            ResourceType.TOPIC,
            "kept",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0",
        )
        with pytest.raises(KafkaException, match="INVALID_RECORD"):
            send(producer, "kept", [b"without a key"])
        # All but the last one, and the one in the active segment, go in the end.
        while len(read_all(servers, "kept")) > 2:
            pass
        assert read_all(servers, "kept")[-1] == b"9"


@pytest.mark.parametrize(
    ("setting", "hours"),
    [("message_timestamp_after_max_ms", 2), ("message_timestamp_before_max_ms", -2)],
)
def test_how_far_a_timestamp_may_be_off_counts_for_the_next_batch(
    servers: str, setting: str, hours: int
) -> None:
    create_topic(servers, setting)
    alter(servers, ResourceType.TOPIC, setting, **{setting: str(HOUR_MS)})
    with pytest.raises(KafkaException, match="INVALID_TIMESTAMP"):
        send_at(servers, setting, now_ms() + hours * HOUR_MS)
    alter(servers, ResourceType.TOPIC, setting, **{setting: str(3 * HOUR_MS)})
    send_at(servers, setting, now_ms() + hours * HOUR_MS)
    assert first_message(servers, setting, 0).value() == b"v"


def test_segment_bytes_altered_counts_for_the_next_batch(servers: str, data: Path) -> None:
    create_topic(servers, "rolled")
    producer = plain_producer(servers)
    send(producer, "rolled", [b"v" * 1000])
    alter(servers, ResourceType.TOPIC, "rolled", internal_segment_bytes="100")
    send(producer, "rolled", [b"v" * 1000])
    assert len(list((data / "rolled-0").glob("*.log"))) == 2


def test_a_broker_setting_altered_counts_for_topics_without_their_own(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "plain")
        create_topic(servers, "generous", max_message_bytes="2000")
        alter(servers, ResourceType.BROKER, "1", message_max_bytes="500")
        producer = plain_producer(servers)
        with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
            send(producer, "plain", [b"v" * 1000])
        assert send(producer, "generous", [b"v" * 1000]) == [0]


@pytest.mark.crash
def test_P1_alterations_outlive_a_sigkill(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data")
    create_topic(process.bootstrap_servers, "orders", retention_ms="5", flush_ms="6")
    altered(
        process.bootstrap_servers,
        a_resource(TOPIC, "orders", ("retention.ms", SET, "7"), ("flush.ms", DELETE, None)),
        a_resource(BROKER, "1", ("message.max.bytes", SET, "500")),
        a_resource(BROKER, "", ("log.retention.bytes", SET, "8")),
    )
    before = described(process.bootstrap_servers, TOPIC, "orders")

    process.kill()
    process.restart()

    assert described(process.bootstrap_servers, TOPIC, "orders") == before
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        send(plain_producer(process.bootstrap_servers), "orders", [b"v" * 1000])
    assert process.stop() == 0


def test_the_admin_client_reads_sources_and_synonyms(servers: str) -> None:
    create_topic(servers, "seen-by-admin", retention_ms="5")
    resource = ConfigResource(ResourceType.TOPIC, "seen-by-admin")
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("5", SOURCE_TOPIC)
    assert found["segment.bytes"].is_default
    assert list(found["segment.bytes"].synonyms) == ["log.segment.bytes"]
