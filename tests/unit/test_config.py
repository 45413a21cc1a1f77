"""Settings are Kafka's, checked before anything else happens."""

import pytest

from txn.config import BROKER_PROPERTIES, BrokerSettings, parse_topic_settings, topic_setting
from txn.errors import ConfigError


@pytest.mark.parametrize("name", sorted(BROKER_PROPERTIES))
def test_every_broker_default_is_a_value_that_could_be_given(name: str) -> None:
    default = BROKER_PROPERTIES[name].default
    given = {} if default is None else {name: default}
    assert BrokerSettings(given)[name] == default


def test_numbers_and_booleans_are_taken_as_python_has_them() -> None:
    settings = BrokerSettings({"num.partitions": 6, "auto.create.topics.enable": False})
    assert (settings["num.partitions"], settings["auto.create.topics.enable"]) == (6, False)


def test_an_unknown_topic_setting_is_refused_with_the_closest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms"):
        parse_topic_settings({"retention.msec": "1"})


def test_a_topic_setting_that_would_not_be_honoured_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compression\.type cannot be 'gzip'"):
        parse_topic_settings({"compression.type": "gzip"})


def test_a_topic_takes_its_default_from_the_broker() -> None:
    broker = BrokerSettings({"log.segment.bytes": 1000})
    assert topic_setting("segment.bytes", {}, broker) == 1000
    assert topic_setting("segment.bytes", {"segment.bytes": "500"}, broker) == 500
