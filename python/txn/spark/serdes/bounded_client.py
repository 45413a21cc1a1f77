"""confluent-kafka's client of a schema registry, with bounds that it does not have itself.

It reads an answer of any length, unpacks any compression, and waits for ever unless `timeout` is
set. Here each answer has at most `ANSWER_BYTES_MAX`, is not compressed, and a whole look-up with
its retries ends after `LOOK_UP_SECONDS`.
"""

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any, Final, TypeVar

from txn.errors import ConfigError, RejectedError

ANSWER_BYTES_MAX: Final = 4 << 20
"""The most bytes of an answer. A registry's own limit of a schema is 1 MiB or less."""

ANSWER_SECONDS: Final = 30.0
"""The wait for each piece of an answer, unless the properties have a `timeout`."""

LOOK_UP_SECONDS: Final = 120.0
"""The most that a look-up takes, with its retries and the schema's references."""

T = TypeVar("T")


class BoundedClient:
    """A client for one registry; look-ups come one after another.

    Args:
        settings: The properties of `SchemaRegistryClient`, as pairs.

    Raises:
        ConfigError: the extra `registry` is not installed or too old, or the properties do not fit.
    """

    def __init__(self, settings: tuple[tuple[str, Any], ...]) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"columns of a schema registry need packages of an extra ({error.name}). Run "
                "`pip install '.[registry]'` in txn's checkout, on the workers too"
            ) from None
        try:
            self._client = SchemaRegistryClient({"timeout": ANSWER_SECONDS, **dict(settings)})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the properties of a registry do not fit: {error}") from None
        self._session = _session_of(self._client)
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.event_hooks["response"].append(_bound)

    def ask(self, look_up: Callable[[Any], T]) -> T:
        """Call a function with the client, and return its result.

        Raises:
            RejectedError: an answer has too many bytes, or is compressed.
            TimeoutError: the registry takes too long. This client cannot be used again.
            Exception: as the function raises.
        """
        results: list[T] = []
        faults: list[BaseException] = []

        def work() -> None:
            try:
                results.append(look_up(self._client))
            except BaseException as error:
                faults.append(error)

        worker = Thread(target=work, name="txn schema registry", daemon=True)
        worker.start()
        worker.join(LOOK_UP_SECONDS)
        if faults:
            raise faults[0]
        if not results:
            self._session.close()  # the thread's next read fails
            raise TimeoutError(f"it takes more than {LOOK_UP_SECONDS:g} s")
        return results[0]


def _session_of(client: Any) -> Any:
    session = getattr(getattr(client, "_rest_client", None), "session", None)
    if not hasattr(session, "event_hooks"):  # of httpx, which earlier releases do not use
        raise ConfigError(
            "columns of a schema registry need another release of confluent-kafka: its client has "
            "no session of httpx. Run `pip install '.[registry]'` in txn's checkout, on the "
            "workers too"
        )
    return session


def _bound(response: Any) -> None:
    """Bound the body of an answer whose headers have come."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RejectedError("the registry sends a compressed answer, which was not asked for")
    response.stream = _bounded_stream(response.stream)


def _bounded_stream(stream: Any) -> Any:
    class Bounded(type(stream)):  # type: ignore[misc] # httpx asks for a class of its own
        def __init__(self) -> None:
            pass

        def __iter__(self) -> Iterator[bytes]:
            count = 0
            for piece in stream:
                count += len(piece)
                if count > ANSWER_BYTES_MAX:
                    raise RejectedError(
                        f"an answer of the registry has more than {ANSWER_BYTES_MAX} bytes"
                    )
                yield piece

        def close(self) -> None:
            stream.close()

    return Bounded()
