"""Kafka's settings for producers and consumers, checked where exactly-once depends on them.

Every property keeps its Kafka (librdkafka) name and its value; nothing is renamed. Three
things are done with them: what was given twice or contradicts exactly-once is refused before
any I/O, keywords turn into names (`linger_ms` is `linger.ms`), and the few properties that
exactly-once needs are set when they were left out.
"""

from collections.abc import Mapping
from typing import Final

from txn.errors import ConfigError

Settings = dict[str, object]

ALIASES: Final[Mapping[str, str]] = {
    "acks": "request.required.acks",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "metadata.broker.list": "bootstrap.servers",
}
"""librdkafka's second names, to the one this module looks at."""

MOCK_CLUSTER: Final = "test.mock.num.brokers"
"""With librdkafka's own mock cluster there is nothing to name as bootstrap servers."""


def producer_settings(
    config: Mapping[str, object] | None,
    *,
    transactional_id: str | None,
    bootstrap_servers: str | None,
    keywords: Mapping[str, object],
) -> Settings:
    """Return the configuration of an idempotent producer, transactional if it has an id.

    Raises:
        ConfigError: a property is given twice, is missing, or contradicts idempotence.
    """
    settings = _merged(config, keywords, bootstrap_servers=bootstrap_servers)
    if transactional_id is not None:
        _put(settings, "transactional.id", transactional_id)
    if settings.get("transactional.id") == "":
        raise ConfigError(
            "transactional.id is empty: name the producer, the same name after each restart, "
            "or leave it out for a producer without transactions",
            property="transactional.id",
        )
    _require_servers(settings)
    why = "an idempotent producer needs it, and txn has no other kind"
    _require(settings, "enable.idempotence", {"true"}, why)
    _require(settings, "request.required.acks", {"all", "-1"}, why)
    _require_range(settings, "max.in.flight.requests.per.connection", 1, 5, why)
    _require_range(settings, "retries", 1, None, why)
    settings.setdefault("enable.idempotence", True)
    return settings


def consumer_settings(
    config: Mapping[str, object] | None,
    *,
    group_id: str | None,
    bootstrap_servers: str | None,
    keywords: Mapping[str, object],
) -> Settings:
    """Return the configuration of a consumer whose offsets are committed in transactions.

    Raises:
        ConfigError: a property is given twice, is missing, or would commit offsets or show
            records outside transactions.
    """
    settings = _merged(config, keywords, bootstrap_servers=bootstrap_servers)
    if group_id is not None:
        _put(settings, "group.id", group_id)
    _require_servers(settings)
    if not settings.get("group.id"):
        raise ConfigError(
            "group.id is missing: the transaction stores the consumer's offsets under it",
            property="group.id",
        )
    _require(
        settings,
        "enable.auto.commit",
        {"false"},
        "offsets are committed with the transaction; a commit beside it skips records when the "
        "transaction aborts",
    )
    _require(
        settings,
        "isolation.level",
        {"read_committed"},
        "a consumer in a transaction must see neither aborted records nor offsets of a "
        "transaction still open",
    )
    settings.setdefault("enable.auto.commit", False)
    return settings


def _merged(
    config: Mapping[str, object] | None,
    keywords: Mapping[str, object],
    *,
    bootstrap_servers: str | None,
) -> Settings:
    settings: Settings = {}
    for name, value in (config or {}).items():
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is no property name: names are strings", property=name)
        _put(settings, name, value)
    for keyword, value in keywords.items():
        # Callbacks are the only properties with an underscore in their Kafka name.
        is_callback = keyword.endswith("_cb") or keyword == "on_delivery"
        _put(settings, keyword if is_callback else keyword.replace("_", "."), value)
    if bootstrap_servers is not None:
        _put(settings, "bootstrap.servers", bootstrap_servers)
    return settings


def _put(settings: Settings, name: str, value: object) -> None:
    name = ALIASES.get(name, name)
    if name in settings:
        raise ConfigError(
            f"{name} is given twice, as {settings[name]!r} and as {value!r}; give it once",
            property=name,
        )
    settings[name] = value


def _require_servers(settings: Settings) -> None:
    if not settings.get("bootstrap.servers") and MOCK_CLUSTER not in settings:
        raise ConfigError(
            "bootstrap.servers is missing: name at least one broker as host:port",
            property="bootstrap.servers",
        )


def _require(settings: Settings, name: str, allowed: set[str], why: str) -> None:
    if name in settings and _text(settings[name]) not in allowed:
        raise ConfigError(
            f"{name}={settings[name]} does not fit: {why}. Leave it out, or set it to "
            f"{' or '.join(sorted(allowed))}",
            property=name,
        )


def _require_range(
    settings: Settings, name: str, lowest: int, highest: int | None, why: str
) -> None:
    if name not in settings:
        return
    text = _text(settings[name])
    number = int(text) if text.lstrip("-").isdigit() else None
    if number is not None and lowest <= number and (highest is None or number <= highest):
        return
    wanted = f"at least {lowest}" if highest is None else f"{lowest} to {highest}"
    raise ConfigError(
        f"{name}={settings[name]} does not fit: {why}. Leave it out, or set it to {wanted}",
        property=name,
    )


def _text(value: object) -> str:
    return str(value).strip().lower()
