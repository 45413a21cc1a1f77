"""Subscriptions to the metrics of clients (KIP-714): a resource with settings of its own.

Pure. A subscription has its settings by its name alone. They are stored, described and listed, and
nothing reads them here: txn announces neither GetTelemetrySubscriptions nor PushTelemetry, so
clients push no metrics. A Kafka without a metrics reporter for clients does the same.

Source: the answers of Apache Kafka 4.4 (ClientMetricsConfigs). Here a pattern with a construct that
`txn.java_pattern` does not support is refused too.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from txn.config import ConfigType, Property, known_property, split_list, whole_number
from txn.errors import ConfigError
from txn.java_pattern import UnsupportedPatternError, of_texts
from txn.metadata.configs import ConfigSource, Described, Synonym

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000

MATCHED: Final = frozenset(
    {
        *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
        *("client_source_address", "client_source_port"),
    }
)
"""The properties of a client that a pattern of `match` may name."""


def _patterns(text: str) -> str:
    for pattern in split_list(text):
        # Java drops empty parts at the end: `client_id=` has no value.
        name, *values = (part.strip() for part in pattern.rstrip("=").split("="))
        if name not in MATCHED or len(values) != 1:
            raise ValueError(pattern)
        of_texts(values[0])
    return text


CLIENT_METRICS_PROPERTIES: Final[Mapping[str, Property]] = {
    "interval.ms": Property(
        ConfigType.INT,
        partial(whole_number, ConfigType.INT),
        300_000,
        "a whole number",
        "How often a client pushes its metrics.",
    ),
    "match": Property(
        ConfigType.STRING,
        _patterns,
        "",
        "a list of NAME=PATTERN",
        "The clients that push metrics; empty: all.",
    ),
    "metrics": Property(
        ConfigType.STRING,
        str,
        "",
        "a list of prefixes",
        "Prefixes of the metrics that clients push; *: all, empty: none.",
    ),
}
"""Every setting of a subscription. Lists are altered as texts: Kafka appends nothing to them."""

_LISTS: Final = frozenset({"match", "metrics"})


class IntervalError(ConfigError):
    """The interval is out of bounds. Kafka answers INVALID_REQUEST, and not INVALID_CONFIG."""


def describe_client_metrics(own: Mapping[str, str]) -> list[Described]:
    """Every setting of a subscription, by name, whether there is such a subscription or not."""
    return [
        Described(
            name,
            own.get(name, str(entry.default)),
            ConfigType.LIST if name in _LISTS else entry.kind,
            entry.about,
            False,
            (Synonym(name, own[name], ConfigSource.CLIENT_METRICS),) if name in own else (),
        )
        for name, entry in sorted(CLIENT_METRICS_PROPERTIES.items())
    ]


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Check the settings that a subscription would have.

    Raises:
        ConfigError: a name is unknown, or a value does not fit, in Kafka's words.
        IntervalError: the interval is out of bounds.
    """
    for name in values:
        known_property(CLIENT_METRICS_PROPERTIES, "client metrics", name)
    interval = values.get("interval.ms")
    if interval is not None:
        _require_interval(interval)
    for pattern in split_list(values.get("match", "")):
        try:
            _patterns(pattern)
        except (ValueError, UnsupportedPatternError):
            raise ConfigError(
                f"Illegal client matching pattern: {pattern}", property="match", value=pattern
            ) from None


def _require_interval(text: str) -> None:
    name = "interval.ms"
    try:
        interval_ms = whole_number(ConfigType.INT, text)
    except ValueError as error:
        said = f"Invalid value {text} for configuration {name}: {error}"
        raise ConfigError(said, property=name, value=text) from None
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise IntervalError(
            f"Invalid value {interval_ms} for {name}, interval must be between {INTERVAL_MS_MIN} "
            f"and {INTERVAL_MS_MAX} (1 hour)",
            property=name,
            value=interval_ms,
        )
