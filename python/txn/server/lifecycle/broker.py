"""A broker inside this process: `txn.Broker`.

A program holds a `Broker`; its threads hold only the `Service`. So a broker without a reference is
collected: it warns and stops. A broker that still runs when the interpreter ends is closed in
order. In a forked child neither can be used, and neither changes anything of the parent.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from txn.config import BrokerSettings
from txn.errors import BrokerFailedError
from txn.security.sessions import SASL_PLAINTEXT
from txn.server.lifecycle.listening import host_and_port
from txn.server.lifecycle.service import Service, warn_of_unclosed


class Broker:
    """A Kafka broker in this process, with transactions.

    It listens from its creation until `close`, which the end of a `with` block calls. One process
    may have several brokers. A broker that is garbage-collected without `close` stops with a
    ResourceWarning; so does a broker that is open when the interpreter ends.

    A forked child may read `bootstrap_servers` and `path`. Closing does nothing there, and all
    other uses raise ForkedError, because the broker runs in the parent.

    Its log lines go to the logger "txn.broker". A handler runs on the thread where the event
    happens, which may serve connections. So put a handler that may block behind a
    `logging.handlers.QueueHandler`.

    Args:
        path: The data directory, created if need be; None for a temporary one, removed at the end.
        host: Address to listen on, by default 127.0.0.1.
        port: Port to listen on; 0, the default, means a free port. Not allowed beside the property
            `listeners`, which has several addresses by name.
        durability: "process", "commit" or "always" (promise P2). By default "commit" for a
            named directory and "process" for a temporary one.
        metrics: HOST:PORT where GET /metrics, /healthz and /readyz are answered, "127.0.0.1:0" for
            a free port. None means nowhere. Addresses other than loopback need
            `metrics_allow_remote=True`.
        users: Passwords of users of SCRAM, by name; stored in the directory. Without the property
            `listeners` the one listener then uses SASL_PLAINTEXT and serves only these users.
        properties: Broker properties by Kafka's names, `{"num.partitions": 6}`.
        settings: The same with underscores for dots, `num_partitions=6`.

    Raises:
        ConfigError: a property is unknown or its value does not fit.
        DirectoryError: the directory is in use, not a data directory, or not readable.
        CorruptLogError: acknowledged data is damaged; the message names file and position.
        AddressError: the address is in use, or does not belong to this machine.

    Example:
        >>> with txn.Broker() as broker:
        ...     producer = txn.Producer(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        durability: str | None = None,
        metrics: str | None = None,
        users: Mapping[str, str] | None = None,
        properties: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        options = dict(properties or {})
        options |= {name.replace("_", "."): value for name, value in settings.items()}
        options.setdefault("durability", durability or ("process" if path is None else "commit"))
        if metrics is not None:
            options["metrics.listener"] = metrics
        if users is not None and "listeners" not in options:
            at = host or "127.0.0.1"
            at = f"[{at}]" if ":" in at else at
            options["listeners"] = f"{SASL_PLAINTEXT}://{at}:{port or 0}"
            from txn.security.scram import HASHES_BY_MECHANISM  # few brokers are given users

            options.setdefault("sasl.enabled.mechanisms", ",".join(HASHES_BY_MECHANISM))
            host = port = None
        self._service = Service.open(BrokerSettings(options), path, host, port, users or {})

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of the first listener, for clients; an IPv6 address is in brackets."""
        return self._service.bootstrap_servers

    @property
    def listeners(self) -> dict[str, str]:
        """HOST:PORT of each listener, by name."""
        return dict(self._service.listeners)

    def reload_certificates(self) -> None:
        """Read the certificates of TLS listeners again at once.

        The broker also notices changed files by itself. Connections stay. Certificates that cannot
        be used are logged, and change nothing.
        """
        self._require_service().certificates.reload()

    @property
    def metrics_address(self) -> str | None:
        """HOST:PORT where metrics and probes are answered; None: nowhere."""
        listener = self._service.metrics
        return None if listener is None else host_and_port(listener.address)

    @property
    def path(self) -> Path:
        """The data directory."""
        return self._service.path

    @property
    def failure(self) -> BrokerFailedError | None:
        """The reason why the broker stopped serving: a bug, or the loss of its directory."""
        return self._require_service().failure

    def call_when_failed(self, call: Callable[[], object]) -> None:
        """Make a call, on any thread, when the service fails; at once if it has."""
        self._require_service().call_when_failed(call)

    def close(self) -> None:
        """Answer requests under way, close every log in order, and leave. Harmless when repeated.

        In a forked child it does nothing.

        Raises:
            StorageError: a log could not be closed, or the directory is no longer at its path; the
                next start will check it.
        """
        self._service.close()

    def __enter__(self) -> Self:
        self._require_service()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<txn.Broker {self._service.description}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a txn.Broker cannot be pickled: it runs in the process that made it. Give other "
            "processes its bootstrap_servers"
        )

    def __del__(self) -> None:
        service = getattr(self, "_service", None)  # none where the constructor raised
        if service is not None and service.is_open:
            try:
                warn_of_unclosed(service, self)
            finally:
                service.close_aside()

    def _require_service(self) -> Service:
        self._service.require_this_process()
        return self._service


def service_of(broker: Broker) -> Service:
    """The running parts of a broker, such as its node and its log cleaner, for tests and tools."""
    return broker._require_service()
