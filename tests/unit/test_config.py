"""Settings are Kafka's, checked before anything else happens."""

from pathlib import Path

import pytest

from txn.config import (
    BROKER_PROPERTIES,
    TOPIC_PROPERTIES,
    TOPIC_SYNONYMS,
    BrokerSettings,
    as_text,
    parse_topic_settings,
    topic_default,
    topic_setting,
    topic_settings,
)
from txn.errors import ConfigError


@pytest.mark.parametrize("name", sorted(BROKER_PROPERTIES))
def test_every_broker_default_is_a_value_that_could_be_given(name: str) -> None:
    default = BROKER_PROPERTIES[name].default
    given = {} if default is None else {name: default}
    assert BrokerSettings(given)[name] == default


@pytest.mark.parametrize("name", sorted(set(TOPIC_PROPERTIES) - {"internal.segment.bytes"}))
def test_every_topic_default_is_what_the_broker_hands_down(name: str) -> None:
    default = TOPIC_PROPERTIES[name].default
    assert TOPIC_PROPERTIES[name].parse(as_text(default)) == default
    assert topic_default(name, BrokerSettings()) == default


def test_every_synonym_is_a_property_of_both_tables() -> None:
    synonyms = {synonym for names in TOPIC_SYNONYMS.values() for synonym in names}
    assert set(TOPIC_SYNONYMS) <= set(TOPIC_PROPERTIES)
    assert synonyms <= set(BROKER_PROPERTIES)


def test_numbers_and_booleans_are_taken_as_python_has_them() -> None:
    settings = BrokerSettings({"num.partitions": 6, "auto.create.topics.enable": False})
    assert (settings["num.partitions"], settings["auto.create.topics.enable"]) == (6, False)


@pytest.mark.parametrize("queued", [-1, 0, 1000])
def test_what_requests_may_hold_is_unlimited_or_enough_for_the_largest(queued: int) -> None:
    given = {"socket.request.max.bytes": 1000, "queued.max.request.bytes": queued}
    assert BrokerSettings(given)["queued.max.request.bytes"] == queued
    with pytest.raises(ConfigError, match=r"at least socket\.request\.max\.bytes, 1000"):
        BrokerSettings(given | {"queued.max.request.bytes": 999})


def test_an_unknown_topic_setting_is_refused_with_the_closest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms"):
        parse_topic_settings({"retention.msec": "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compression.type", "GZIP"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("remote.storage.enable", "true"),
        ("min.insync.replicas", "0"),
        ("retention.ms", "-2"),
        ("retention.ms", "1_000"),
        ("retention.ms", ""),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("cleanup.policy", "Compact"),
        ("segment.bytes", "1000"),
        ("preallocate", "yes"),
        ("leader.replication.throttled.replicas", "all"),
    ],
)
def test_a_topic_setting_that_would_not_be_honoured_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value {text} for configuration {name}: "):
        parse_topic_settings({name: text})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 55 ", 55),
        ("compression.type", "uncompressed", "uncompressed"),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("compression.zstd.level", "-131072", -131072),
        ("min.insync.replicas", "3", 3),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", "compact,compact", "compact"),
        ("cleanup.policy", "", ""),
        ("leader.replication.throttled.replicas", "0:1,2:3", "0:1,2:3"),
    ],
)
def test_a_topic_setting_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert topic_setting(name, parse_topic_settings({name: text}), BrokerSettings()) == value


def test_a_topic_setting_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="Null value not supported"):
        parse_topic_settings({"retention.ms": None})


def test_a_compaction_lag_whose_least_is_above_its_most_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lag\.ms \(10\) > max\.compaction\.lag\.ms \(5\)"):
        parse_topic_settings({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_a_topic_takes_its_default_from_the_broker() -> None:
    broker = BrokerSettings({"log.segment.bytes": 2_000_000})
    assert topic_setting("segment.bytes", {}, broker) == 2_000_000
    assert topic_setting("segment.bytes", {"segment.bytes": "3000000"}, broker) == 3_000_000


def test_all_settings_of_a_topic_are_those_asked_for_one_by_one() -> None:
    broker = BrokerSettings({"log.segment.bytes": 2_000_000})
    own = {"retention.ms": "5", "internal.segment.bytes": "500", "of.another.broker": "x"}
    found = topic_settings(own, broker)
    assert found == {name: topic_setting(name, own, broker) for name in found}
    assert found["segment.bytes"] == 500


def test_a_changed_broker_setting_counts_for_what_topics_inherit() -> None:
    broker = BrokerSettings()
    assert topic_settings({}, broker)["max.message.bytes"] == 1_048_588
    broker.change(here={"message.max.bytes": "5"}, everywhere={})
    assert topic_settings({}, broker)["max.message.bytes"] == 5


def test_the_page_of_settings_names_every_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    assert [name for name in TOPIC_PROPERTIES if f"`{name}`" not in page] == []


def test_a_topic_for_tests_has_segments_of_any_size() -> None:
    topic = parse_topic_settings({"segment.bytes": "2000000", "internal.segment.bytes": "500"})
    assert topic_setting("segment.bytes", topic, BrokerSettings()) == 500


def test_a_stored_value_of_another_broker_that_does_not_fit_counts_for_nothing() -> None:
    stored = {"compression.type": "brotli", "segment.bytes": "500"}
    assert topic_setting("compression.type", stored, BrokerSettings()) == "producer"
    assert topic_setting("segment.bytes", stored, BrokerSettings()) == 1 << 30


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.minutes": 3, "log.retention.ms": 4}, 4),
    ],
)
def test_milliseconds_count_before_minutes_and_minutes_before_hours(
    given: dict[str, int], retention_ms: int
) -> None:
    assert topic_default("retention.ms", BrokerSettings(given)) == retention_ms


def test_a_changed_broker_setting_counts_before_the_given_one() -> None:
    broker = BrokerSettings({"message.max.bytes": 1})
    broker.changed_everywhere["message.max.bytes"] = 2
    assert topic_default("max.message.bytes", broker) == 2
    broker.changed["message.max.bytes"] = 3
    assert topic_default("max.message.bytes", broker) == 3
