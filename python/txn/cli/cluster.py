"""The options of every command that connects to a cluster: its servers and security settings.

`--command-config FILE` is read as Kafka's own tools read it, by Java's rules for properties. `-X
NAME=VALUE` is librdkafka's. Both accept both spellings. A value `${env:NAME}` is replaced by a
variable of the environment, as by Kafka's EnvVarConfigProvider.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer

from txn.cli.no_answer import ADVICE, DEFAULT_SERVERS, TIMEOUT_S, exit_if_unreachable
from txn.errors import ConfigError
from txn.security.client import PLAIN, SecuritySettings

if TYPE_CHECKING:
    from txn.admin.cluster import RunningCluster
    from txn.cluster.brokers import RemoteBroker

CONFIG_BYTES_MAX: Final = 1 << 20
_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")

Bootstrap = Annotated[
    str | None,
    typer.Option(
        *("--bootstrap", "--bootstrap-server", "--bootstrap-servers"),
        metavar="HOST:PORT[,…]",
        help=f"Running brokers, txn's or Apache Kafka's. [default: {DEFAULT_SERVERS}]",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar="TXN_COMMAND_CONFIG",
        help="Properties of the connection: security.protocol, sasl.*, ssl.*.",
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="One such property; may be given again. Give no passwords: others see them in `ps`.",
    ),
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster is, and the way in."""

    servers: str = DEFAULT_SERVERS
    security: SecuritySettings = PLAIN
    options: str = f"--bootstrap {DEFAULT_SERVERS}"
    """Return the options as a later command names them, without secrets."""


def cluster(bootstrap: str | None, config: Path | None, settings: Sequence[str] | None) -> Cluster:
    """Return the cluster that the options of a command name.

    Raises:
        ConfigError: the file cannot be read, or a setting is unknown or does not fit.
    """
    if bootstrap == "":  # as of a variable that is not set
        raise ConfigError("--bootstrap is empty: give HOST:PORT, or leave it out")
    if config is None and not settings:
        servers = bootstrap or DEFAULT_SERVERS
        return Cluster(servers, options=f"--bootstrap {servers}")
    from txn.admin.way_in import SERVERS, require_known
    from txn.security.client_reader import read_security

    properties = {} if config is None else _of_file(config)
    again = [] if config is None else [f"--command-config {quote(str(config))}"]
    for text in settings or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError("-X takes NAME=VALUE, for example -X security.protocol=SSL")
        properties[name.strip()] = value
        again.append(f"-X {quote(f'{name.strip()}={_without_secret(name.strip(), value)}')}")
    properties = {name: _filled(name, value) for name, value in properties.items()}
    require_known(properties)
    servers = bootstrap or properties.get(SERVERS) or DEFAULT_SERVERS
    options = " ".join([f"--bootstrap {servers}", *again])
    return Cluster(servers, read_security(properties), options)


def _without_secret(name: str, value: str) -> str:
    """The value of a setting; of a secret, `…` unless it refers to the environment."""
    from txn.security.client_names import SECRETS

    return "…" if name in SECRETS and _VARIABLE.fullmatch(value) is None else value


@contextmanager
def running_cluster(
    bootstrap: str | None,
    config: Path | None,
    settings: Sequence[str] | None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> "Iterator[RunningCluster]":
    """The cluster that the options of a command name; without an answer the command ends.

    Raises:
        ConfigError: as `cluster` does.
        RejectedError: it lets this client not in.
    """
    from txn.admin.cluster import RunningCluster

    found = cluster(bootstrap, config, settings)
    with exit_if_unreachable():
        running = RunningCluster(
            found.servers,
            security=found.security,
            options=found.options,
            timeout_s=timeout_s,
            advice=ADVICE,
        )
        try:
            yield running
        finally:
            running.close()


@contextmanager
def any_broker(
    bootstrap: str | None,
    config: Path | None,
    settings: Sequence[str] | None,
    *,
    timeout_s: float,
) -> "Iterator[RemoteBroker]":
    """A connection to one broker of the cluster that the options of a command name.

    Without an answer within `timeout_s` seconds the command ends.

    Raises:
        ConfigError: as `cluster` does.
        RejectedError: it lets this client not in.
    """
    from txn.cluster.brokers import Brokers

    found = cluster(bootstrap, config, settings)
    brokers = Brokers(found.servers, security=found.security, timeout_s=timeout_s, advice=ADVICE)
    with exit_if_unreachable():
        try:
            yield brokers.any()
        finally:
            brokers.close()


def _of_file(path: Path) -> dict[str, str]:
    import javaproperties

    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"--command-config {str(path)!r} cannot be read: {error.strerror}"
        ) from None
    if len(content) > CONFIG_BYTES_MAX:
        raise ConfigError(f"--command-config {str(path)!r} is no file of properties: it is large")
    try:
        return javaproperties.loads(content.decode("latin-1"))
    except ValueError:
        raise ConfigError(
            f"--command-config {str(path)!r} cannot be read as Java's properties: a \\u has to be "
            "followed by four hexadecimal digits, and a backslash is written \\\\"
        ) from None


def _filled(name: str, value: str) -> str:
    """Put variables of the environment in their places."""

    def variable(found: re.Match[str]) -> str:
        try:
            return os.environ[found[1]]
        except KeyError:
            raise ConfigError(
                f"{name} refers to {found[0]}, and the environment has no {found[1]}: set it",
                property=name,
            ) from None

    return _VARIABLE.sub(variable, value)
