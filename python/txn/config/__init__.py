"""The broker's and the topics' settings, by Kafka's own property names.

An unknown setting is refused with the closest known name. A value out of range is refused with the
range, or with the values that fit. A topic's setting is the topic's own, else the broker's default
for topics (`TOPIC_SYNONYMS`). A broker's setting is the first there is: altered for this broker,
altered for every broker, given at the start, the default.

Deviations from Apache Kafka 4.2:

- `group.initial.rebalance.delay.ms` is 0 (Kafka: 3000), since a broker inside a program or a
  test has no fleet of consumers to wait for; `num.network.threads` is 2 (Kafka: 3), since a
  reactor does the work of many of Kafka's threads.
- A setting that one node without tiered storage cannot honour is refused: more than one replica,
  `remote.storage.enable`.
- Kafka's settings for features that txn lacks (replication between brokers, …) are unknown
  here.

Source: Apache Kafka 4.2, its definitions of broker and topic configs; KIP-226 (layers).
"""

from txn.config.broker_properties import BROKER_PROPERTIES, LISTENER_PREFIX, listener_property
from txn.config.property import (
    HOUR_MS,
    INT32_MAX,
    INT64_MAX,
    ConfigType,
    Property,
    as_text,
    fits,
    split_address,
    split_list,
    split_overrides,
    whole_number,
)
from txn.config.security_properties import STANDARD_AUTHORIZER, STORE_PROPERTIES
from txn.config.settings import (
    BrokerSettings,
    is_broker_property,
    known_property,
    parse_property,
    parse_topic_settings,
    topic_default,
    topic_setting,
    topic_settings,
)
from txn.config.topic_properties import SEGMENT_BYTES_MIN, TOPIC_PROPERTIES, TOPIC_SYNONYMS

__all__ = [
    "BROKER_PROPERTIES",
    "HOUR_MS",
    "INT32_MAX",
    "INT64_MAX",
    "LISTENER_PREFIX",
    "SEGMENT_BYTES_MIN",
    "STANDARD_AUTHORIZER",
    "STORE_PROPERTIES",
    "TOPIC_PROPERTIES",
    "TOPIC_SYNONYMS",
    "BrokerSettings",
    "ConfigType",
    "Property",
    "as_text",
    "fits",
    "is_broker_property",
    "known_property",
    "listener_property",
    "parse_property",
    "parse_topic_settings",
    "split_address",
    "split_list",
    "split_overrides",
    "topic_default",
    "topic_setting",
    "topic_settings",
    "whole_number",
]
