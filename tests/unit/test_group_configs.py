"""The settings of groups: where a value comes from, its bounds, and what is refused."""

import pytest

from txn.config import BrokerSettings
from txn.errors import ConfigError
from txn.metadata.configs import ConfigSource, Described, Synonym
from txn.metadata.group_configs import (
    GROUP_PROPERTIES,
    check_group,
    describe_group,
    group_setting,
)
from txn.metadata.image import Image
from txn.metadata.record_encoding import decode, encode
from txn.metadata.records import GROUP_RESOURCE, ConfigRecord

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
DEFAULTS = BrokerSettings()


def entry(name: str, own: dict[str, str], broker: BrokerSettings = DEFAULTS) -> Described:
    return next(entry for entry in describe_group(own, broker) if entry.name == name)


def refusal(own: dict[str, str], *changed: str, broker: BrokerSettings = DEFAULTS) -> str:
    with pytest.raises(ConfigError) as refused:
        check_group(own, changed or own, broker)
    return refused.value.message


def test_a_group_without_settings_has_those_of_the_broker() -> None:
    broker = BrokerSettings({"group.consumer.session.timeout.ms": 46_000})
    assert group_setting(SESSION, {}, broker) == 46_000
    assert entry(SESSION, {}, broker).synonyms == (
        Synonym("group.consumer.session.timeout.ms", "46000", ConfigSource.GIVEN),
        Synonym("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    )


def test_a_groups_own_setting_comes_first() -> None:
    own = {SESSION: " 50000 "}
    assert group_setting(SESSION, own, DEFAULTS) == 50_000
    told = entry(SESSION, own)
    assert (told.value, told.source) == ("50000", ConfigSource.GROUP)
    assert told.synonyms[1].name == "group.consumer.session.timeout.ms"


def test_an_altered_setting_of_the_broker_counts_for_groups_at_once() -> None:
    broker = BrokerSettings()
    broker.change(here={"group.consumer.assignment.interval.ms": "7"}, everywhere={})
    assert group_setting(ASSIGNMENT, {}, broker) == 7


@pytest.mark.parametrize(("stored", "in_force"), [("1000", 45_000), ("99999", 60_000)])
def test_a_stored_value_beyond_the_bounds_counts_as_the_nearest_bound(
    stored: str, in_force: int
) -> None:
    assert group_setting(SESSION, {SESSION: stored}, DEFAULTS) == in_force
    assert entry(SESSION, {SESSION: stored}).value == stored


def test_a_stored_value_that_does_not_fit_counts_for_nothing() -> None:
    assert group_setting(SESSION, {SESSION: "long"}, DEFAULTS) == 45_000
    assert entry(SESSION, {SESSION: "long"}).source is ConfigSource.DEFAULT


def test_values_are_refused_in_the_words_of_Kafka() -> None:
    assert refusal({"nope": "1"}).startswith("Unknown group config name: nope")
    assert refusal({SESSION: "1000"}) == f"{SESSION} must be in the range 45000 to 60000 inclusive."
    assert refusal({SESSION: "x"}).startswith(f"Invalid value x for configuration {SESSION}: ")
    assert refusal({"streams.num.standby.replicas": "3"}) == (
        "streams.num.standby.replicas must be less than or equal to 2"
    )
    assert refusal({"streams.task.offset.interval.ms": "1"}) == (
        "streams.task.offset.interval.ms must be greater than or equal to 15000"
    )
    for name, value in {
        "share.auto.offset.reset": "by_duration:1h",
        "share.delivery.count.limit": "11",
        "share.isolation.level": "serializable",
        "streams.rack.aware.assignment.tags": "a,b,a",
        "streams.assignor.name": "mine",
        "errors.deadletterqueue.topic.name": "__consumer_offsets",
        "share.renew.acknowledge.enable": "perhaps",
    }.items():
        assert name in refusal({name: value})


def test_a_duration_has_digits_of_ascii_as_in_java() -> None:
    for text in ("by_duration:P\u0661D", "by_duration:PT1.\u0665S"):
        assert text in refusal({"share.auto.offset.reset": text})


def test_every_default_and_a_value_of_each_kind_is_taken() -> None:
    taken = {
        name: str(one.default).lower()
        for name, one in GROUP_PROPERTIES.items()
        if one.default is not None
    }
    check_group(taken, taken, DEFAULTS)
    for value in ("earliest", "by_duration:P1DT2H", "by_duration:PT0.5S"):
        check_group({"share.auto.offset.reset": value}, ["share.auto.offset.reset"], DEFAULTS)


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    broker = BrokerSettings(
        {
            "group.consumer.min.session.timeout.ms": 1,
            "group.consumer.min.heartbeat.interval.ms": 1,
        }
    )
    words = f"{SESSION} must be greater than {HEARTBEAT}"
    assert refusal({SESSION: "5000"}, broker=broker) == words
    assert refusal({SESSION: "9000", HEARTBEAT: "9000"}, HEARTBEAT, broker=broker) == words
    check_group({SESSION: "9000", HEARTBEAT: "8999"}, [SESSION, HEARTBEAT], broker)


def test_a_stored_value_that_nobody_changes_hinders_no_alteration() -> None:
    check_group(
        {"nope": "1", HEARTBEAT: "x", ASSIGNMENT: "99999", SESSION: "46000"}, [SESSION], DEFAULTS
    )


def test_the_image_holds_the_settings_of_groups_that_have_some() -> None:
    image = Image()

    def alter(name: str, value: str | None) -> Image:
        fork = image.fork()
        record = decode(encode(ConfigRecord("g", name, value, GROUP_RESOURCE)))
        assert record is not None
        fork.apply(record)
        return fork

    image = alter(SESSION, "50000")
    later = alter(HEARTBEAT, "6000")
    assert image.group_settings == {"g": {SESSION: "50000"}}
    assert later.group_settings == {"g": {SESSION: "50000", HEARTBEAT: "6000"}}
    image = alter(SESSION, None)
    assert image.group_settings == {}
