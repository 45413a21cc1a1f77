"""The listeners of a broker, read from Kafka's settings.

| setting | meaning |
|---|---|
| `listeners` | NAME://HOST:PORT of each socket; without a host, every address |
| `advertised.listeners` | the address in answers to clients of a listener, if not its own |
| `listener.security.protocol.map` | NAME:PROTOCOL of each listener; Kafka's own names are known |
| `inter.broker.listener.name` | the listener that other brokers use |

Pure.

Deviations from Apache Kafka 4.2:

- Every listener is advertised. Kafka starts with a listener that is not, and gives its clients
  no broker.
- Without `listeners`, one PLAINTEXT listener has the host and port of `txn.Broker` or `--listen`.

Source: Apache Kafka 4.2, `AbstractKafkaConfig` and `SocketServerConfigs`; KIP-103, KIP-797.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, NoReturn

from txn.config import LISTENER_PREFIX, BrokerSettings, split_list
from txn.errors import ConfigError
from txn.security.sessions import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL, is_sasl, is_tls

EVERY_ADDRESS: Final = ("0.0.0.0", "::")

_PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""Kafka's security protocols; each is also the name of a listener that has it."""

_ENDPOINT: Final = re.compile(r"([A-Za-z0-9_.-]+)://(\[[^\]]*\]|[^\[\]:/]*):([0-9]{1,5})")


class ListenerSpec(NamedTuple):
    """A listener before it is bound.

    `advertised`: None for the address that it is bound to.
    """

    name: str
    host: str
    port: int
    security_protocol: str
    advertised: tuple[str, int] | None
    is_inter_broker: bool

    @property
    def is_sasl(self) -> bool:
        """Clients authenticate by SASL before anything else."""
        return is_sasl(self.security_protocol)


def read_listeners(
    settings: BrokerSettings, host: str | None, port: int | None
) -> list[ListenerSpec]:
    """Read the listeners of a broker, in their order.

    Args:
        settings: The broker's settings.
        host: The host of a single PLAINTEXT listener, where `listeners` is not set.
        port: Its port.

    Raises:
        ConfigError: a setting is not written so, or two contradict.
    """
    if settings["listeners"] is None:
        endpoints = {PLAINTEXT: (host or "127.0.0.1", port or 0)}
    elif host is not None or port is not None:
        _refuse("listeners", "stands beside a host or port to listen on: give one of the two")
    else:
        endpoints = _endpoints("listeners", settings["listeners"])
        _require_distinct_ports(endpoints)
    protocols = _protocols(settings["listener.security.protocol.map"], endpoints)
    for name, setting in settings.listener_settings():
        _require_use(name, setting, protocols, endpoints)
    advertised = _advertised(settings["advertised.listeners"], endpoints)
    inter_broker = settings["inter.broker.listener.name"]
    if inter_broker is not None and inter_broker.upper() not in endpoints:
        _refuse(
            "inter.broker.listener.name",
            f"is {inter_broker}, and listeners are {', '.join(endpoints)}",
        )
    return [
        ListenerSpec(
            name,
            address[0] or EVERY_ADDRESS[0],
            address[1],
            protocols[name],
            advertised.get(name),
            is_inter_broker=inter_broker is not None and inter_broker.upper() == name,
        )
        for name, address in endpoints.items()
    ]


def is_address(host: str) -> bool:
    """Return True if a host is written as an IP address without a zone."""
    from ipaddress import ip_address  # 2 ms of a start

    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def listener_names(settings: BrokerSettings) -> list[str]:
    """The names of a broker's listeners, in capitals. Raises ConfigError."""
    text = settings["listeners"]
    return [PLAINTEXT] if text is None else list(_endpoints("listeners", text))


def _endpoints(setting: str, text: str) -> dict[str, tuple[str, int]]:
    """The addresses in a list of NAME://HOST:PORT, by name in capitals as Kafka has them."""
    endpoints: dict[str, tuple[str, int]] = {}
    for entry in split_list(text):
        matched = _ENDPOINT.fullmatch(entry)
        if matched is None or int(matched[3]) > 65535:
            _refuse(setting, f"has {entry!r}: it takes NAME://HOST:PORT with a port up to 65535")
        name = matched[1].upper()
        if name in endpoints:
            _refuse(setting, f"names {name} twice")
        endpoints[name] = matched[2].strip("[]"), int(matched[3])
    if not endpoints:
        _refuse(setting, "is empty: it takes NAME://HOST:PORT")
    return endpoints


def _require_distinct_ports(endpoints: Mapping[str, tuple[str, int]]) -> None:
    # One port may serve an IPv4 and an IPv6 address. Two addresses of a machine need two ports.
    families = Counter((":" in host, port) for host, port in endpoints.values() if port != 0)
    for (_, port), count in families.items():
        if count > 1:
            _refuse("listeners", f"has port {port} twice: each listener takes a port of its own")


def _protocols(text: str, endpoints: Mapping[str, object]) -> dict[str, str]:
    setting = "listener.security.protocol.map"
    mapped: dict[str, str] = {}
    for entry in split_list(text):
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not colon or not name or protocol not in _PROTOCOLS:
            known = ", ".join(_PROTOCOLS)
            _refuse(setting, f"has {entry!r}: it takes NAME:PROTOCOL, with a protocol of {known}")
        if mapped.setdefault(name, protocol) != protocol:
            _refuse(setting, f"gives {name} two protocols, {mapped[name]} and {protocol}")
    protocols = {name: name for name in _PROTOCOLS} | mapped
    for name in endpoints:
        if name not in protocols:
            _refuse(setting, f"has no protocol for listener {name}: add {name}:{SSL}")
    return protocols


def _require_use(
    name: str, setting: str, protocols: Mapping[str, str], endpoints: Mapping[str, object]
) -> None:
    """Refuse a setting of a listener that would count for nothing, and leave it open."""
    prefix = f"{LISTENER_PREFIX}{name}."
    if name.upper() not in endpoints:
        _refuse(prefix, f"stands before a setting, and listeners are {', '.join(endpoints)}")
    if name != name.lower():
        _refuse(f"{prefix}{setting}", f"has capitals: write {LISTENER_PREFIX}{name.lower()}.")
    protocol = protocols[name.upper()]
    if setting.startswith("max."):
        return  # the limits on connections, of any protocol
    is_used = is_tls(protocol) if setting.startswith("ssl.") else is_sasl(protocol)
    if not is_used:
        _refuse(f"{prefix}{setting}", f"is of no use: listener {name.upper()} speaks {protocol}")


def _advertised(text: str | None, endpoints: Mapping[str, object]) -> dict[str, tuple[str, int]]:
    setting = "advertised.listeners"
    if text is None:
        return {}
    advertised = _endpoints(setting, text)
    for name, (host, port) in advertised.items():
        if name not in endpoints:
            _refuse(setting, f"names {name}, and listeners are {', '.join(endpoints)}")
        if host in ("", *EVERY_ADDRESS):
            _refuse(setting, f"gives {name} no host: clients take an address that they can reach")
        if port == 0:
            _refuse(setting, f"gives {name} port 0: clients take the port that they connect to")
    for name in endpoints:
        if name not in advertised:
            _refuse(setting, f"has no address for listener {name}: add {name}://HOST:PORT")
    return advertised


def _refuse(setting: str, reason: str) -> NoReturn:
    raise ConfigError(f"broker property {setting} {reason}", property=setting)
