"""The sockets of a broker's listeners, and the addresses that clients get.

A refused address becomes an `AddressError` that names it and says what to do.
"""

import errno
from collections.abc import Sequence

from txn import _core
from txn.config import BrokerSettings
from txn.errors import AddressError
from txn.security.listeners import EVERY_ADDRESS, ListenerSpec
from txn.security.sessions import Listener
from txn.server.security.certificates import Certificates


def listen(
    specs: Sequence[ListenerSpec],
    settings: BrokerSettings,
    certificates: Certificates,
    durability: _core.Durability,
    *,
    max_connections: int,
) -> _core.Server:
    """Open the sockets of all listeners; none is served yet.

    Raises:
        AddressError: an address is in use, or not one that this process may have.
    """
    try:
        return _core.Server(
            [(spec.name, spec.host, spec.port, certificates.context(spec.name)) for spec in specs],
            durability,
            reactors=settings["num.network.threads"],
            max_request_bytes=settings["socket.request.max.bytes"],
            max_queued_bytes=settings["queued.max.request.bytes"],
            max_connections=max_connections,
            max_idle_ms=settings["connections.max.idle.ms"],
            sync_acks_all=settings["durability"] == "always",
            max_fetch_sessions=settings["max.incremental.fetch.session.cache.slots"],
            max_sasl_bytes=settings["sasl.server.max.receive.size"],
            sasl_listeners=[spec.name for spec in specs if spec.is_sasl],
        )
    except (OSError, OverflowError) as error:
        _, host, port, *_ = _refused(specs, error)
        raise AddressError(
            f"cannot listen on {host}:{port}: {_failure_of(error)}; port 0 takes a free one",
            host=host,
            port=port,
        ) from error


def host_and_port(address: tuple[str, int]) -> str:
    """HOST:PORT of an address; an IPv6 address is in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _failure_of(error: OSError | OverflowError) -> str:
    """Why an address cannot be listened on, and what to do."""
    if isinstance(error, OverflowError):
        return "a port is a number up to 65535. Give another"
    if error.errno == errno.EADDRINUSE:
        return "the address is in use. Stop the program that has it, or give another"
    if error.errno == errno.EACCES:
        return "this user may not use that port. Give one above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the address is not of this machine. Give another"
    return f"{error.strerror or error}. Give another"


def _refused(specs: Sequence[ListenerSpec], error: OSError | OverflowError) -> ListenerSpec:
    """The listener that could not be bound."""
    name = getattr(error, "filename", None)
    return next((spec for spec in specs if spec.name == name), specs[0])


def bound_listener(spec: ListenerSpec, bound: tuple[str, int]) -> Listener:
    """A listener that is bound to an address."""
    advertised = spec.advertised or (_reachable(spec.host), bound[1])
    return Listener(spec.name, bound, advertised, spec.security_protocol, spec.is_inter_broker)


def _reachable(host: str) -> str:
    """The host in answers to clients; this machine's name if it listens on every address."""
    import socket

    return socket.gethostname() if host in EVERY_ADDRESS else host
