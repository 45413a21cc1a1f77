"""Settings as clients see them, and the effects of their alterations."""

import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.config import BROKER_PROPERTIES, TOPIC_PROPERTIES, BrokerSettings
from txn.errors import ConfigError
from txn.metadata.configs import (
    Alteration,
    AlterOperation,
    Changes,
    ConfigSource,
    Described,
    Synonym,
    alter,
    describe_broker,
    describe_every_broker,
    describe_topic,
    replace,
)
from txn.metadata.image import Image, creation_records
from txn.metadata.record_encoding import decode, encode
from txn.metadata.records import ConfigRecord


def layered(
    given: Mapping[str, object] | None = None,
    *,
    here: dict[str, str] | None = None,
    everywhere: dict[str, str] | None = None,
) -> BrokerSettings:
    settings = BrokerSettings(given)
    settings.change(here=here or {}, everywhere=everywhere or {})
    return settings


def topic_entry(name: str, own: dict[str, str], broker: BrokerSettings) -> Described:
    return next(entry for entry in describe_topic(own, broker) if entry.name == name)


def broker_entry(name: str, broker: BrokerSettings) -> Described:
    return next(entry for entry in describe_broker(broker) if entry.name == name)


def test_a_topic_setting_is_told_with_every_layer_it_could_come_from() -> None:
    broker = layered(
        {"log.retention.hours": 5, "log.retention.minutes": 6},
        here={"log.retention.ms": "7"},
        everywhere={"log.retention.ms": "8"},
    )
    entry = topic_entry("retention.ms", {"retention.ms": " 9 "}, broker)
    assert (entry.value, entry.source) == ("9", ConfigSource.TOPIC)
    assert entry.synonyms == (
        Synonym("retention.ms", "9", ConfigSource.TOPIC),
        Synonym("log.retention.ms", "7", ConfigSource.BROKER),
        Synonym("log.retention.ms", "8", ConfigSource.EVERY_BROKER),
        Synonym("log.retention.minutes", "6", ConfigSource.GIVEN),
        Synonym("log.retention.hours", "5", ConfigSource.GIVEN),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_a_value_that_comes_from_another_unit_is_told_as_a_default_as_in_kafka() -> None:
    entry = topic_entry("retention.ms", {}, layered({"log.retention.hours": 5}))
    assert (entry.value, entry.source, entry.synonyms) == ("18000000", ConfigSource.DEFAULT, ())


def test_the_first_layer_that_has_a_value_is_in_force() -> None:
    given = {"message.max.bytes": 1}
    everywhere = {"message.max.bytes": "2"}
    here = {"message.max.bytes": "3"}
    found = [
        topic_entry("max.message.bytes", {}, broker)
        for broker in (
            layered(),
            layered(given),
            layered(given, everywhere=everywhere),
            layered(given, everywhere=everywhere, here=here),
        )
    ]
    assert [(entry.value, entry.source) for entry in found] == [
        ("1048588", ConfigSource.DEFAULT),
        ("1", ConfigSource.GIVEN),
        ("2", ConfigSource.EVERY_BROKER),
        ("3", ConfigSource.BROKER),
    ]


def test_an_internal_setting_is_told_only_of_a_topic_that_has_it() -> None:
    names = {entry.name for entry in describe_topic({}, layered())}
    assert "internal.segment.bytes" not in names
    assert topic_entry("internal.segment.bytes", {"internal.segment.bytes": "5"}, layered())


def test_a_stored_value_that_does_not_fit_is_told_as_what_is_in_force() -> None:
    entry = topic_entry("compression.type", {"compression.type": "brotli"}, layered())
    assert (entry.value, entry.source) == ("producer", ConfigSource.DEFAULT)


def test_a_broker_setting_is_told_under_its_own_name_alone() -> None:
    broker = layered({"log.retention.hours": 5}, here={"log.retention.ms": "7"})
    entry = broker_entry("log.retention.hours", broker)
    assert [synonym.value for synonym in entry.synonyms] == ["5", "168"]
    assert entry.is_read_only
    assert not broker_entry("log.retention.ms", broker).is_read_only


def test_a_broker_setting_without_a_value_is_null() -> None:
    entry = broker_entry("log.retention.ms", layered())
    assert (entry.value, entry.source, entry.synonyms) == (None, ConfigSource.DEFAULT, ())


def test_every_broker_is_told_with_what_was_altered_for_all() -> None:
    broker = layered({"message.max.bytes": 1}, everywhere={"log.retention.ms": "8"})
    assert [(entry.name, entry.value) for entry in describe_every_broker(broker)] == [
        ("log.retention.ms", "8")
    ]


def test_what_another_broker_stored_counts_only_if_it_is_known_dynamic_and_fits() -> None:
    broker = layered(
        here={"remote.log.reader.threads": "5", "num.partitions": "6", "log.retention.ms": "x"}
    )
    assert broker.changed == {}


@pytest.mark.parametrize("name", [*TOPIC_PROPERTIES, *BROKER_PROPERTIES])
def test_every_setting_says_what_it_is_for(name: str) -> None:
    entry = TOPIC_PROPERTIES.get(name) or BROKER_PROPERTIES[name]
    assert entry.about.endswith(".")


def altered(own: dict[str, str], *alterations: Alteration) -> Changes:
    return alter(TOPIC_PROPERTIES, "topic", own, alterations)


@pytest.mark.parametrize(
    ("own", "operation", "value", "changes"),
    [
        ({}, AlterOperation.SET, "compact", {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact"}, AlterOperation.SET, "compact", {}),
        ({"cleanup.policy": "compact"}, AlterOperation.DELETE, "", {"cleanup.policy": None}),
        ({}, AlterOperation.DELETE, "", {}),
        ({}, AlterOperation.APPEND, "compact", {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": ""}, AlterOperation.APPEND, "delete", {"cleanup.policy": "delete"}),
        ({}, AlterOperation.APPEND, "", {"cleanup.policy": "delete,"}),
        ({"cleanup.policy": "compact"}, AlterOperation.APPEND, "compact", {}),
        (
            {"cleanup.policy": "compact,delete"},
            AlterOperation.SUBTRACT,
            "delete,x",
            {"cleanup.policy": "compact"},
        ),
        ({"cleanup.policy": "compact"}, AlterOperation.SUBTRACT, "delete", {}),
    ],
)
def test_an_alteration_comes_to_the_settings_that_change(
    own: dict[str, str], operation: AlterOperation, value: str, changes: Changes
) -> None:
    assert altered(own, Alteration("cleanup.policy", operation, value)) == changes


@pytest.mark.parametrize("operation", [AlterOperation.APPEND, AlterOperation.SUBTRACT])
def test_a_setting_that_is_no_list_has_no_entries_to_alter(operation: AlterOperation) -> None:
    with pytest.raises(ConfigError, match=r"to key retention\.ms because its type is not LIST"):
        altered({}, Alteration("retention.ms", operation, "5"))


@pytest.mark.parametrize("operation", set(AlterOperation) - {AlterOperation.DELETE})
def test_an_unknown_setting_is_refused_with_the_closest_known_one(
    operation: AlterOperation,
) -> None:
    with pytest.raises(ConfigError, match=r"retention\.msec; did you mean retention\.ms"):
        altered({}, Alteration("retention.msec", operation, "5"))


def test_an_unknown_setting_that_nobody_stored_is_taken_away_without_a_change() -> None:
    assert altered({}, Alteration("retention.msec", AlterOperation.DELETE)) == {}


def test_what_another_broker_stored_can_be_taken_away() -> None:
    own = {"confluent.tier.enable": "true"}
    assert altered(own, Alteration("confluent.tier.enable", AlterOperation.DELETE)) == {
        "confluent.tier.enable": None
    }


def test_a_replacement_takes_away_what_it_does_not_name() -> None:
    own = {"retention.ms": "5", "flush.ms": "6", "segment.ms": "7"}
    assert replace(own, {"retention.ms": "8", "segment.ms": "7"}) == {
        "retention.ms": "8",
        "flush.ms": None,
    }


def _alterations() -> st.SearchStrategy[Alteration]:
    words = st.lists(st.sampled_from(["compact", "delete"]), max_size=3).map(",".join)
    return st.builds(
        Alteration, st.just("cleanup.policy"), st.sampled_from(AlterOperation), words
    ) | st.builds(
        Alteration,
        st.sampled_from(["retention.ms", "segment.ms"]),
        st.sampled_from([AlterOperation.SET, AlterOperation.DELETE]),
        st.integers(1, 9).map(str),
    )


@given(st.lists(_alterations()))
def test_P8_settings_after_a_restart_are_the_fold_of_their_records(
    alterations: list[Alteration],
) -> None:
    """After any alteration, replay of the written bytes gives the settings in force."""
    written = creation_records(
        "orders", uuid.UUID(int=7), 1, {}, node_id=1, directory_id=uuid.UUID(int=9)
    )
    live = Image()
    for record in written:
        live.apply(record)
    for alteration in alterations:
        changes = altered(live.topics["orders"].settings, alteration)
        records = [ConfigRecord("orders", name, value) for name, value in changes.items()]
        for fresh in records:
            live.apply(fresh)
        written += records

    replayed = Image()
    for record in written:
        decoded = decode(encode(record))
        assert decoded is not None
        replayed.apply(decoded)

    assert replayed.topics["orders"].settings == live.topics["orders"].settings
