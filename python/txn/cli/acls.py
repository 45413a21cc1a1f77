"""`txn acls`: list access control entries, add some, remove some. Options are those of kafka-acls.

The broker, txn's or Apache Kafka's, checks and stores them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from txn.cli.cluster import (
    Bootstrap,
    CommandConfig,
    Setting,
    any_broker,
)
from txn.cli.no_answer import TIMEOUT_S
from txn.cli.options import AsJson
from txn.cli.output import print_json, print_lines
from txn.errors import ConfigError, RejectedError
from txn.printable import printable
from txn.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    acl_fault,
)
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

acls_app = typer.Typer(
    help="Show and change access control lists.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

VERSIONS: Final = range(1, 4)
"""The versions of the three requests; version 0 has no pattern types."""


class OperationName(StrEnum):
    """Operations as kafka-acls writes them."""

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    CREATE_TOKENS = "CreateTokens"
    DESCRIBE_TOKENS = "DescribeTokens"
    TWO_PHASE_COMMIT = "TwoPhaseCommit"


class PatternName(StrEnum):
    """Pattern types as kafka-acls writes them."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class FilterPatternName(StrEnum):
    """Pattern types of a list, as kafka-acls writes them."""

    ANY = "any"
    MATCH = "match"
    LITERAL = "literal"
    PREFIXED = "prefixed"


Topic = Annotated[list[str] | None, typer.Option(help="A topic, * for all; may be given again.")]
Group = Annotated[list[str] | None, typer.Option(help="A group, * for all; may be given again.")]
TransactionalId = Annotated[
    list[str] | None, typer.Option(help="A transactional id, * for all; may be given again.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Pattern = Annotated[
    PatternName, typer.Option("--resource-pattern-type", help="How names are matched.")
]
Operations = Annotated[
    list[OperationName] | None,
    typer.Option("--operation", help="May be given again. [default: All]", case_sensitive=False),
]
AllowPrincipal = Annotated[
    list[str] | None, typer.Option(metavar="User:NAME", help="Allowed; may be given again.")
]
DenyPrincipal = Annotated[
    list[str] | None, typer.Option(metavar="User:NAME", help="Denied; may be given again.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Addresses of the allowed principals; may be given again. [default: *]"),
]
DenyHost = Annotated[
    list[str] | None,
    typer.Option(help="Addresses of the denied principals; may be given again. [default: *]"),
]

Resource = tuple[ResourceType, str]


@acls_app.command("list")
def list_acls(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    of_cluster: OfCluster = False,
    pattern: Annotated[
        FilterPatternName,
        typer.Option(
            "--resource-pattern-type", help="match: all patterns that apply to the resource."
        ),
    ] = FilterPatternName.MATCH,
    principal: Annotated[
        list[str] | None, typer.Option(metavar="User:NAME", help="May be given again.")
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """List access control entries, all or those of some resources and principals.

    \b
    Examples:
      txn acls list --bootstrap kafka-1:9092
      txn acls list --topic orders                    all that name the topic, wildcards too
      txn acls list --principal User:ada --json

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    resources: Sequence[Resource | None] = _resources(topic, group, transactional_id, of_cluster)
    principals: Sequence[str | None] = principal or [None]
    wanted = [
        AclFilter(
            resource[0] if resource else ResourceType.ANY,
            resource[1] if resource else None,
            PatternType[pattern.name] if resource else PatternType.ANY,
            name,
            None,
            Operation.ANY,
            Permission.ANY,
        )
        for resource in resources or [None]
        for name in principals
    ]
    with _asked(bootstrap, command_config, settings) as ask:
        found = {acl for one in wanted for acl in described_acls(ask, one)}
    acls = sorted(found)
    if as_json:
        print_json([_data(acl) for acl in acls])
    else:
        print_lines([_line(acl) for acl in acls] or ["no access control entry"])


@acls_app.command()
def add(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    of_cluster: OfCluster = False,
    pattern: Pattern = PatternName.LITERAL,
    operation: Operations = None,
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Add access control entries, and print them. One that is there already stays.

    \b
    Examples:
      txn acls add --topic orders --operation Read --operation Write --allow-principal User:ada
      txn acls add --group shop- --resource-pattern-type prefixed --operation Read \\
          --allow-principal User:ada --allow-host 10.0.0.7
      txn acls add --topic '*' --deny-principal User:eve

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    resources = _resources(topic, group, transactional_id, of_cluster)
    acls = _entries(
        resources,
        PatternType[pattern.name],
        _operations(operation),
        (allow_principal, allow_host),
        (deny_principal, deny_host),
    )
    if not acls:
        raise ConfigError(
            "give a resource (--topic, --group, --transactional-id, --cluster) and somebody "
            "(--allow-principal, --deny-principal)"
        )
    for acl in acls:
        fault = acl_fault(acl)
        if fault is not None:
            raise ConfigError(fault)
    request = {"creations": [_creation(acl) for acl in acls]}
    with _asked(bootstrap, command_config, settings) as ask:
        results = ask(ApiKey.CREATE_ACLS, request).results
    for acl, result in zip(acls, results, strict=True):
        _require(result.error_code, result.error_message, _line(acl))
    _print(acls, "added", as_json=as_json)


@acls_app.command()
def remove(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    of_cluster: OfCluster = False,
    pattern: Pattern = PatternName.LITERAL,
    operation: Operations = None,
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Remove access control entries, and print the removed ones.

    Without principals all entries of the named resources go.

    \b
    Examples:
      txn acls remove --topic orders --operation Write --allow-principal User:ada
      txn acls remove --topic orders                  every entry of this very name

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    resources = _resources(topic, group, transactional_id, of_cluster)
    if not resources:
        raise ConfigError("give a resource: --topic, --group, --transactional-id or --cluster")
    acls = _entries(
        resources,
        PatternType[pattern.name],
        _operations(operation),
        (allow_principal, allow_host),
        (deny_principal, deny_host),
    )
    filters = [AclFilter(*acl) for acl in acls]
    if not acls:
        filters = [
            AclFilter(
                kind,
                name,
                PatternType[pattern.name],
                None,
                None,
                Operation.ANY,
                Permission.ANY,
            )
            for kind, name in resources
        ]
        if operation or allow_host or deny_host:
            raise ConfigError("--operation and hosts belong to --allow-principal, --deny-principal")
    request = {"filters": [_filter(one) for one in filters]}
    with _asked(bootstrap, command_config, settings) as ask:
        results = ask(ApiKey.DELETE_ACLS, request).filter_results
    gone = set()
    for result in results:
        _require(result.error_code, result.error_message, "")
        for one in result.matching_acls:
            acl = Acl(
                ResourceType(one.resource_type),
                one.resource_name,
                PatternType(one.pattern_type),
                one.principal,
                one.host,
                Operation(one.operation),
                Permission(one.permission_type),
            )
            _require(one.error_code, one.error_message, _line(acl))
            gone.add(acl)
    _print(sorted(gone), "removed", as_json=as_json)


def _resources(
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    transactional_ids: Sequence[str] | None,
    is_of_cluster: bool,
) -> list[Resource]:
    named: list[Resource] = [(ResourceType.TOPIC, name) for name in topics or ()]
    named += [(ResourceType.GROUP, name) for name in groups or ()]
    named += [(ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids or ()]
    if is_of_cluster:
        named.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return named


def _operations(names: Sequence[OperationName] | None) -> list[Operation]:
    return [Operation[name.name] for name in names or ()] or [Operation.ALL]


def _entries(
    resources: Sequence[Resource],
    pattern: PatternType,
    operations: Sequence[Operation],
    allowed: tuple[Sequence[str] | None, Sequence[str] | None],
    denied: tuple[Sequence[str] | None, Sequence[str] | None],
) -> list[Acl]:
    """An entry for each resource, operation, principal and host."""
    acls = []
    for permission, (principals, hosts) in (
        (Permission.ALLOW, allowed),
        (Permission.DENY, denied),
    ):
        if hosts and not principals:
            raise ConfigError("hosts are given without a principal")
        for (kind, name), operation, principal, host in product(
            resources, operations, principals or (), hosts or ("*",)
        ):
            own = PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern
            acls.append(Acl(kind, name, own, principal, host, operation, permission))
    return acls


# ---------------------------------------------------------------- asking


class _Ask:
    """Sends one of the three requests to a broker of a cluster."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker

    def __call__(self, api_key: ApiKey, request: dict[str, Any]) -> Any:
        return self._broker.call(api_key, VERSIONS, request)


@contextmanager
def _asked(
    bootstrap: str | None, config: Path | None, settings: Sequence[str] | None
) -> Iterator[_Ask]:
    with any_broker(bootstrap, config, settings, timeout_s=TIMEOUT_S) as broker:
        yield _Ask(broker)


def described_acls(ask: Callable[[ApiKey, dict[str, Any]], Any], wanted: AclFilter) -> list[Acl]:
    """List the entries that a filter lets through.

    `ask` sends a request of an API in one of `VERSIONS`. Raises RejectedError.
    """
    answer = ask(ApiKey.DESCRIBE_ACLS, _filter(wanted))
    _require(answer.error_code, answer.error_message, "")
    return [
        Acl(
            ResourceType(one.resource_type),
            one.resource_name,
            PatternType(one.pattern_type),
            acl.principal,
            acl.host,
            Operation(acl.operation),
            Permission(acl.permission_type),
        )
        for one in answer.resources
        for acl in one.acls
    ]


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _creation(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "resource_pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


ADVICE: Final = {
    ErrorCode.SECURITY_DISABLED: "Start the broker with authorizer.class.name",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "Its user needs Alter on the cluster to change entries, Describe to list them"
    ),
}


def _require(code: int, message: str | None, entry: str) -> None:
    """Check an error code. Raises RejectedError."""
    if code == ErrorCode.NONE:
        return
    known = ErrorCode(code)
    said = ": ".join(part for part in (entry, known.name, message or "") if part)
    raise RejectedError(
        ". ".join(part.rstrip(".") for part in (said, ADVICE.get(known, "")) if part)
    )


# ---------------------------------------------------------------- output


def _data(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _line(acl: Acl) -> str:
    return printable(
        f"{acl.resource_type.name}:{acl.pattern_type.name}:{acl.resource_name}  "
        f"{acl.permission.name} {acl.principal} {acl.operation.name} from {acl.host}"
    )


def _print(acls: Sequence[Acl], done: str, *, as_json: bool) -> None:
    if as_json:
        print_json([_data(acl) for acl in acls])
    else:
        lines = [f"{done}  {_line(acl)}" for acl in acls]
        print_lines(lines or [f"nothing was {done}: no such entry"])
