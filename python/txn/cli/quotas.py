"""`txn quotas`: the quotas of clients and addresses of a cluster, txn's or Apache Kafka's.

The broker checks and stores them. An entity is a user, a client id, both, or an address.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, any_broker
from txn.cli.options import AsJson
from txn.cli.output import print_json, print_lines
from txn.errors import ConfigError, RejectedError
from txn.hints import did_you_mean
from txn.metadata.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    DEFAULT,
    EXACT,
    IP,
    IP_KEYS,
    USER,
    entity_of,
)
from txn.metadata.records import Entity
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from txn.cluster.brokers import RemoteBroker

quotas_app = typer.Typer(
    help="Show, set and remove the quotas of clients.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TIMEOUT_S: Final = 30.0
VERSIONS: Final = range(2)
KEYS: Final = tuple(dict.fromkeys((*CLIENT_KEYS, *IP_KEYS)))
NO_ENTITY: Final = "give --user, --client-id or --ip, or their default"

UserName = Annotated[str | None, typer.Option("--user", help="A user, without `User:`.")]
ClientId = Annotated[str | None, typer.Option("--client-id", help="A client id.")]
Address = Annotated[str | None, typer.Option("--ip", help="An address.")]
DefaultUser = Annotated[
    bool, typer.Option("--default-user", help="Users without a quota of their own.")
]
DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="Client ids without a quota of their own.")
]
DefaultAddress = Annotated[
    bool, typer.Option("--default-ip", help="Addresses without a quota of their own.")
]


@quotas_app.command("list")
def list_quotas(
    user: UserName = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Address = None,
    default_ip: DefaultAddress = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """List quotas, all or those that name a user, a client id or an address.

    \b
    Examples:
      txn quotas list --bootstrap kafka-1:9092
      txn quotas list --user ada --json               of ada, and of ada with some client id

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    with any_broker(bootstrap, command_config, settings, timeout_s=TIMEOUT_S) as broker:
        found = described_quotas(broker, entity, is_strict=False)
    if as_json:
        print_json([_data(entity, quotas) for entity, quotas in found.items()])
    else:
        print_lines([_line(*one) for one in found.items()] or ["no quota"])


@quotas_app.command("set")
def set_quotas(
    quotas: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="Quotas.")],
    user: UserName = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Address = None,
    default_ip: DefaultAddress = False,
    validate_only: Annotated[
        bool, typer.Option("--dry-run", help="Only check the quotas at the broker; change nothing.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Set quotas of a user, a client id, both, or an address.

    \b
    Keys: producer_byte_rate and consumer_byte_rate (bytes a second), request_percentage (of one
    thread's time), controller_mutation_rate (partitions created or deleted a second). An address
    has connection_creation_rate (a second).

    \b
    Examples:
      txn quotas set --user ada producer_byte_rate=1048576
      txn quotas set --default-user --client-id shop consumer_byte_rate=1e6
      txn quotas set --default-ip connection_creation_rate=50

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    if not entity:
        raise ConfigError(NO_ENTITY)
    changes: dict[str, float | None] = {}
    for text in quotas:
        key, equals, value = text.partition("=")
        _require_close_to_none(key)
        changes[key] = _number(value) if equals else None
        if changes[key] is None:
            raise ConfigError(f"{text!r} is no quota: give KEY=VALUE with a number")
    with any_broker(bootstrap, command_config, settings, timeout_s=TIMEOUT_S) as broker:
        _alter(broker, entity, changes, validate_only=validate_only)
    _print_change("would be set" if validate_only else "set", entity, changes, as_json=as_json)


@quotas_app.command()
def remove(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="[default: all]")] = None,
    user: UserName = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Address = None,
    default_ip: DefaultAddress = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Remove some or all quotas of one entity, and print the removed ones.

    \b
    Examples:
      txn quotas remove --user ada producer_byte_rate
      txn quotas remove --default-client-id

    \b
    Exit codes: 0 done, 1 refused or no such quota, 2 wrong usage or no broker answers.
    """
    entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    if not entity:
        raise ConfigError(NO_ENTITY)
    for key in keys or ():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f": {', '.join(KEYS)}"
            raise ConfigError(f"there is no quota {key!r}{hint}")
    with any_broker(bootstrap, command_config, settings, timeout_s=TIMEOUT_S) as broker:
        known = described_quotas(broker, entity, is_strict=True).get(entity, {})
        gone = {key: value for key, value in known.items() if not keys or key in keys}
        if not gone:
            others = [] if known else described_quotas(broker, (), is_strict=False)
            hint = did_you_mean(entity_name(entity), map(entity_name, others))
            raise RejectedError(f"no such quota of {entity_name(entity)}{hint}")
        _alter(broker, entity, dict.fromkeys(gone), validate_only=False)
    _print_change("removed", entity, gone, as_json=as_json)


def _entity(
    user: str | None,
    is_default_user: bool,
    client_id: str | None,
    is_default_client_id: bool,
    ip: str | None,
    is_default_ip: bool,
) -> Entity:
    """The entity that options name; no part where they name none. Raises ConfigError."""
    parts = []
    for kind, name, is_default in (
        (USER, user, is_default_user),
        (CLIENT_ID, client_id, is_default_client_id),
        (IP, ip, is_default_ip),
    ):
        if name is not None and is_default:
            raise ConfigError(f"give --{kind} or --default-{kind}, not both")
        if name is not None or is_default:
            parts.append((kind, name))
    return entity_of(parts)


def _require_close_to_none(key: str) -> None:
    """Refuse a misspelled key with ConfigError; the broker may know others."""
    hint = "" if key in KEYS else did_you_mean(key, KEYS)
    if hint:
        raise ConfigError(f"there is no quota {key!r}{hint}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def described_quotas(
    broker: "RemoteBroker", entity: Entity, *, is_strict: bool
) -> dict[Entity, dict[str, float]]:
    """Quotas by entity, of those that have all parts of one. Raises RejectedError."""
    components = [
        {"entity_type": kind, "match_type": DEFAULT if name is None else EXACT, "match": name}
        for kind, name in entity
    ]
    request = {"components": components, "strict": is_strict}
    answer = broker.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, VERSIONS, request)
    _require_done(answer.error_code, answer.error_message, "DescribeConfigs")
    found = {
        entity_of((part.entity_type, part.entity_name) for part in entry.entity): {
            one.key: float(one.value) for one in entry.values
        }
        for entry in answer.entries or ()
    }
    return dict(sorted(found.items(), key=lambda one: entity_name(one[0])))


def _alter(
    broker: "RemoteBroker",
    entity: Entity,
    changes: Mapping[str, float | None],
    *,
    validate_only: bool,
) -> None:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in changes.items()
        ],
    }
    request = {"entries": [entry], "validate_only": validate_only}
    for result in broker.call(ApiKey.ALTER_CLIENT_QUOTAS, VERSIONS, request).entries:
        _require_done(result.error_code, result.error_message, "AlterConfigs")


def _require_done(code: int, message: str | None, operation: str) -> None:
    if code == ErrorCode.NONE:
        return
    advice = ""
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        advice = f" Its user needs {operation} on the cluster."
    raise RejectedError(f"the broker refuses: {message or ErrorCode(code).name}{advice}")


# ---------------------------------------------------------------- output


def _data(entity: Entity, quotas: Mapping[str, Any]) -> dict[str, Any]:
    return {"entity": dict(entity), "quotas": dict(sorted(quotas.items()))}


def entity_name(entity: Entity) -> str:
    """Return the words for an entity, the user first."""
    parts = reversed(entity)
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in parts)


def _line(entity: Entity, quotas: Mapping[str, float | None]) -> str:
    values = (f"{key}={value:.15g}" for key, value in sorted(quotas.items()) if value is not None)
    return f"{entity_name(entity)}:  {', '.join(values)}"


def _print_change(
    done: str, entity: Entity, quotas: Mapping[str, float | None], *, as_json: bool
) -> None:
    if as_json:
        print_json(_data(entity, quotas))
    else:
        print_lines([f"{done}  {_line(entity, quotas)}"])
