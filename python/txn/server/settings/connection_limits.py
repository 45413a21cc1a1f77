"""The limits on connections, from the broker's settings to its sockets.

| setting | meaning |
|---|---|
| `max.connections` | the most connections of the broker, or of one listener |
| `max.connections.per.ip` | the most connections of one address |
| `max.connections.per.ip.overrides` | HOST:COUNT of single addresses |
| `max.connection.creation.rate` | the most new connections a second, likewise |

All of them may change while the broker runs. The sockets enforce them
(`rust/txn-net/src/connection_quotas.rs`).

Deviation from Apache Kafka: a host name in overrides means all of its addresses at the start. An
alteration accepts only addresses, because a name would have to be looked up.
"""

from collections.abc import Sequence
from typing import Final, Self

from txn import _core
from txn.config import BrokerSettings, split_overrides
from txn.errors import ConfigError
from txn.security.listeners import ListenerSpec, is_address

OVERRIDES: Final = "max.connections.per.ip.overrides"


class ConnectionLimits:
    """The limits of a broker. `load` makes it, `apply` has sockets keep them."""

    def __init__(
        self,
        settings: BrokerSettings,
        specs: Sequence[ListenerSpec],
        addresses: dict[str, list[str]],
    ) -> None:
        """`addresses`: those of the host names in overrides."""
        self._settings = settings
        self._specs = specs
        self._addresses = addresses

    @classmethod
    def load(cls, settings: BrokerSettings, specs: Sequence[ListenerSpec]) -> Self:
        """Look up the host names of the settings. Raises ConfigError."""
        hosts = split_overrides(settings[OVERRIDES])
        names = [host for host in hosts if not is_address(host)]
        return cls(settings, specs, {name: _looked_up(name) for name in names})

    def apply(self, server: _core.Server) -> None:
        """Apply the current limits to a server's sockets."""
        settings = self._settings
        server.limit_connections(
            max_connections=settings["max.connections"],
            max_per_ip=settings["max.connections.per.ip"],
            overrides=self._overrides(),
            creation_rate=settings["max.connection.creation.rate"],
            listeners=[
                (
                    settings.of_listener(spec.name, "max.connections"),
                    settings.of_listener(spec.name, "max.connection.creation.rate"),
                    spec.is_inter_broker and len(self._specs) > 1,
                )
                for spec in self._specs
            ],
        )

    def _overrides(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for host, count in split_overrides(self._settings[OVERRIDES]).items():
            # A name that another broker has stored was not looked up, and counts for nothing.
            addresses = [host] if is_address(host) else self._addresses.get(host, [])
            found |= dict.fromkeys(addresses, count)
        return found


def _looked_up(name: str) -> list[str]:
    import socket  # few brokers need it

    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"broker property {OVERRIDES} names {name!r}, which has no address here: {error}",
            property=OVERRIDES,
            value=name,
        ) from None
    addresses = (str(address[0]) for *_, address in found)
    return [address for address in addresses if is_address(address)]
