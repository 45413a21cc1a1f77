"""`txn users`: the users of SCRAM of a cluster, txn's or Apache Kafka's.

A password comes from a prompt that does not show it, from a file or from the environment. It is
never on the command line, which others see. It does not leave this process: the cluster gets the
salted password of each mechanism, over a connection that should be encrypted or local.

The first user of a broker that admits only users is added to the data directory, before a start.
"""

import os
import secrets
import sys
import warnings
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import typer

from txn.admin.refusals import unknown
from txn.cli.cluster import Bootstrap, CommandConfig, Setting, any_broker
from txn.cli.options import AsJson
from txn.cli.output import print_json, print_lines
from txn.errors import ConfigError, RejectedError
from txn.hints import did_you_mean
from txn.security.mechanisms import NAME_MAX, SCRAM_SHA_256, SCRAM_SHA_512
from txn.security.scram import (
    HASHES,
    HASHES_BY_MECHANISM,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramHash,
    credential_of,
    salted_password,
)
from txn.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from txn.cluster.brokers import RemoteBroker
    from txn.config import BrokerSettings

TIMEOUT_S = 30.0
PASSWORD_BYTES_MAX = 64 << 10
RESOURCE_NOT_FOUND = 91

users_app = typer.Typer(
    help="Show, add and remove the users of SCRAM.", no_args_is_help=True, rich_markup_mode=None
)


class MechanismName(StrEnum):
    """The mechanisms of SCRAM."""

    SHA_256 = SCRAM_SHA_256
    SHA_512 = SCRAM_SHA_512


Name = Annotated[str, typer.Argument(metavar="NAME", help="The user, without `User:`.")]
Mechanisms = Annotated[
    list[MechanismName] | None,
    typer.Option("--mechanism", help="A mechanism; may be given again. [default: both]"),
]


@users_app.command("list")
def list_users(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """List the users and their mechanisms.

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    with any_broker(bootstrap, command_config, settings, timeout_s=TIMEOUT_S) as broker:
        users = described_users(broker, None)
    if as_json:
        print_json([{"name": name, "mechanisms": known} for name, known in users.items()])
    else:
        lines = [
            f"{name}  " + ", ".join(f"{each} ({count} iterations)" for each, count in known.items())
            for name, known in users.items()
        ]
        print_lines(lines or ["no user"])


@users_app.command()
def add(
    name: Name,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int,
        typer.Option(min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="The cost of each log-in."),
    ] = ITERATIONS_MIN,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The password is its first line. [default: a prompt]"),
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option(metavar="VARIABLE", help="The password is in this variable."),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Data directory of a stopped broker, created if need be, instead of a cluster.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The server.properties of a stopped broker, whose log.dirs is the directory.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a user, or give it another password.

    \b
    Examples:
      txn users add alice --bootstrap kafka-1:9092
      txn users add alice --password-file secrets/alice --mechanism SCRAM-SHA-512
      txn users add admin --config /etc/txn/server.properties   # the first, before a start

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    is_stopped = data is not None or config is not None
    if is_stopped and (bootstrap is not None or settings or command_config is not None):
        raise ConfigError(
            "--data and --config are of a stopped broker: give no cluster beside them"
        )
    directory, broker_settings = _stopped(data, config) if is_stopped else (None, None)
    password = _password(name, password_file, password_env)
    names = [str(each) for each in mechanism or MechanismName]
    salted = [_Salted.of(each, password, iterations) for each in names]
    if directory is not None and broker_settings is not None:
        _add_to(directory, broker_settings, name, salted)
    else:
        with any_broker(bootstrap, command_config, settings, timeout_s=TIMEOUT_S) as broker:
            for each in salted:
                _alter(broker, deletions=[], upsertions=[{"name": name, **each.as_upsertion()}])
    _print_change(as_json, "added", name, names)


class _Salted(NamedTuple):
    """A password as a cluster gets it, for one mechanism."""

    hash_: ScramHash
    salt: bytes
    salted_password: bytes
    iterations: int

    @classmethod
    def of(cls, mechanism: str, password: str, iterations: int) -> Self:
        hash_, salt = HASHES_BY_MECHANISM[mechanism], secrets.token_bytes(SALT_BYTES)
        return cls(hash_, salt, salted_password(hash_, password, salt, iterations), iterations)

    def as_upsertion(self) -> dict[str, Any]:
        return {
            "mechanism": self.hash_.number,
            "iterations": self.iterations,
            "salt": self.salt,
            "salted_password": self.salted_password,
        }

    def as_credential(self) -> ScramCredential:
        return credential_of(self.hash_, self.salted_password, self.salt, self.iterations)


def _stopped(data: Path | None, config: Path | None) -> "tuple[Path, BrokerSettings]":
    """The data directory and the settings of a stopped broker. Raises ConfigError."""
    from txn.config import BrokerSettings
    from txn.server.settings.config_file import read_config_file

    if config is None:
        assert data is not None, "one of the two is given"
        return data, BrokerSettings()
    file = read_config_file(config)
    directory = data or file.data
    if directory is None:
        raise ConfigError(f"--config {str(config)!r} names no log.dirs: give --data")
    return directory, BrokerSettings(file.properties)


def _add_to(
    directory: Path, settings: "BrokerSettings", name: str, salted: "Sequence[_Salted]"
) -> None:
    from txn.metadata.records import UserScramCredentialRecord
    from txn.server.lifecycle.stopped_broker import change_metadata

    if not name or len(name) > NAME_MAX:
        raise ConfigError(f"the name of a user has 1 to {NAME_MAX} characters")
    records = [
        UserScramCredentialRecord(name, each.hash_.number, *each.as_credential()) for each in salted
    ]
    change_metadata(directory, settings, lambda _: records)


@users_app.command()
def remove(
    name: Name,
    mechanism: Mechanisms = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Remove a user, or one of its mechanisms. Open connections stay open.

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such user, or no broker answers.
    """
    with any_broker(bootstrap, command_config, settings, timeout_s=TIMEOUT_S) as broker:
        known = described_users(broker, name).get(name)
        if known is None:
            everyone = described_users(broker, None)
            raise unknown("user", name, did_you_mean(name, everyone), "txn users list")
        names = [str(each) for each in mechanism or known]
        for each in names:
            deletion = {"name": name, "mechanism": HASHES_BY_MECHANISM[each].number}
            _alter(broker, deletions=[deletion], upsertions=[])
    _print_change(as_json, "removed", name, names)


def _print_change(as_json: bool, done: str, name: str, mechanisms: Sequence[str]) -> None:
    if as_json:
        print_json({"name": name, done: list(mechanisms)})
    else:
        print_lines([f"{done} {name}: {', '.join(mechanisms)}"])


def described_users(broker: "RemoteBroker", name: str | None) -> dict[str, dict[str, int]]:
    """The iterations of users by mechanism; `name`: of one, if it is there.

    Raises RejectedError.
    """
    users = None if name is None else [{"name": name}]
    answer = broker.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, range(1), {"users": users})
    _require_done(answer.error_code, answer.error_message)
    found = [each for each in answer.results if each.error_code != RESOURCE_NOT_FOUND]
    for result in found:
        _require_done(result.error_code, result.error_message)
    return {
        result.user: {
            HASHES[info.mechanism].mechanism: int(info.iterations)
            for info in result.credential_infos
            if info.mechanism in HASHES
        }
        for result in found
    }


def _alter(broker: "RemoteBroker", **changes: list[dict[str, Any]]) -> None:
    answer = broker.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, range(1), changes)
    for result in answer.results:
        _require_done(result.error_code, result.error_message)


def _require_done(code: int, message: str | None) -> None:
    if code:
        raise RejectedError(f"the broker refuses: {message or 'error'} (code {int(code)})")


def _password(name: str, file: Path | None, variable: str | None) -> str:
    """Read a new password. Raises ConfigError."""
    if file is not None and variable is not None:
        raise ConfigError("give --password-file or --password-env, not both")
    if file is not None:
        password = _first_line(file)
    elif variable is not None:
        if variable not in os.environ:
            raise ConfigError(f"the environment has no {variable}: set it to the password")
        password = os.environ[variable]
    else:
        password = _typed_password(name)
    if not password:
        raise ConfigError("the password is empty")
    return password


def _typed_password(name: str) -> str:
    """Ask for a new password, twice. Raises ConfigError: there is no terminal."""
    nobody = ConfigError(
        "nobody can type the password: standard input is no terminal. Give --password-file or "
        "--password-env"
    )
    if not sys.stdin.isatty() and not _has_terminal():
        raise nobody
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # getpass shows its source where there is no terminal
            return str(
                typer.prompt(
                    f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
                )
            )
    except typer.Abort:
        if sys.stdin.isatty():  # Ctrl-C or Ctrl-D
            raise
        raise nobody from None


def _has_terminal() -> bool:
    """Return True if the process has a terminal, which getpass opens where its input is none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as source:
            text = source.read(PASSWORD_BYTES_MAX).decode()
    except OSError as error:
        raise ConfigError(
            f"--password-file {str(file)!r} cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"--password-file {str(file)!r} is no text") from None
    return text.partition("\n")[0].rstrip("\r")
