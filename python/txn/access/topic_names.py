"""Lists the topics of a cluster with few imports, for `txn topics list` and completions.

The client in Rust encodes both requests. Importing the protocol library of the other commands
would need more time than the cluster needs to answer.
"""

from typing import TYPE_CHECKING, Final

from txn import _core
from txn.errors import ConfigError, RejectedError, RetriableError

if TYPE_CHECKING:
    from txn.security.client import SecuritySettings

CLIENT_ID: Final = "txn-topics"


def topic_names(
    servers: str, *, security: "SecuritySettings | None", timeout_s: float, advice: str
) -> list[tuple[str, int]]:
    """List topics that are not internal: name and number of partitions, by name.

    Args:
        servers: HOST:PORT[,HOST:PORT…] of some brokers.
        security: The way in; None: a plain connection.
        timeout_s: Limit of a connect, and of the wait for each answer.
        advice: Ends the message about brokers that cannot be reached.

    Raises:
        ConfigError: `servers` has another form, or the files of `security` cannot be used.
        RetriableError: no broker answers.
        RejectedError: it lets this client not in.
    """
    way_in = None
    if security is not None:
        from txn.access.connection import client_security

        way_in = client_security(security)
    timeout_ms = int(timeout_s * 1_000)
    try:
        client = _core.KafkaClient(
            servers, client_id=CLIENT_ID, timeout_ms=timeout_ms, security=way_in
        )
    except ValueError as error:
        message = f"--bootstrap takes HOST:PORT[,HOST:PORT…], not {servers!r}"
        raise ConfigError(message) from error
    try:
        client.any_node()
        names = client.topics()
        described = client.describe_topics(names)
    except _core.KafkaError as error:
        from txn.access.connection import authentication_error

        if not error.args[2]:
            raise authentication_error(error) or RejectedError(str(error)) from error
        raise authentication_error(error) or RetriableError(f"{error}. {advice}") from error
    finally:
        client.close()
    pairs = zip(names, described, strict=True)
    return [(name, topic[0]) for name, topic in pairs if topic is not None]
