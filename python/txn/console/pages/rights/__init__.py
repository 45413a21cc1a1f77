"""The page of rights: access control entries, users and quotas. Each may be refused alone."""

from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from txn.admin.cluster import RunningCluster
from txn.cli.acls import VERSIONS, described_acls
from txn.cli.no_answer import one_line
from txn.cli.quotas import described_quotas, entity_name
from txn.cli.users import described_users
from txn.console.lists import part_of
from txn.console.site import Context, Page, View, Visit
from txn.console.sources import Source
from txn.errors import RejectedError
from txn.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from txn.wire.api_keys import ApiKey

Found = TypeVar("Found")


def acls(visit: Visit, source: Source) -> Context:
    """The access control entries with a text in them."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    text = visit.text("text")
    found, refusal = _or_refusal(lambda: _acls(source))
    shown = [each for each in found or () if text.lower() in _words(each).lower()]
    return {
        "title": "Access control",
        "tab": "acls",
        "text": text,
        "refusal": refusal,
        "shown": part_of(shown, visit.number("part", 1)),
        "address": "/access?" + urlencode({"text": text}),
        "command": f"txn acls list {source.options}",
    }


def users(visit: Visit, source: Source) -> Context:
    """The users that log in by SCRAM."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    found, refusal = _or_refusal(lambda: described_users(source.any_broker, None))
    shown = part_of(sorted((found or {}).items()), visit.number("part", 1))
    return {
        "title": "Users",
        "tab": "users",
        "refusal": refusal,
        "shown": shown,
        "address": "/access/users?all=1",
        "command": f"txn users list {source.options}",
    }


def quotas(visit: Visit, source: Source) -> Context:
    """The quotas of users, client ids and addresses."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    found, refusal = _or_refusal(lambda: described_quotas(source.any_broker, (), is_strict=False))
    rows = [
        (entity_name(entity), key, value)
        for entity, values in (found or {}).items()
        for key, value in sorted(values.items())
    ]
    return {
        "title": "Quotas",
        "tab": "quotas",
        "refusal": refusal,
        "shown": part_of(rows, visit.number("part", 1)),
        "address": "/access/quotas?all=1",
        "command": f"txn quotas list {source.options}",
    }


def _acls(cluster: RunningCluster) -> list[Acl]:
    def ask(api_key: ApiKey, request: dict[str, Any]) -> Any:
        return cluster.ask(api_key, VERSIONS, request)

    everything = AclFilter(
        ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
    )
    return sorted(described_acls(ask, everything))


def _words(acl: Acl) -> str:
    return " ".join((acl.principal, acl.resource_name, acl.resource_type.name, acl.operation.name))


def _or_refusal(ask: Callable[[], Found]) -> tuple[Found | None, str | None]:
    try:
        return ask(), None
    except RejectedError as error:
        return None, one_line(error)


PAGE: Final = Page(
    "Access",
    "/access",
    (
        ("/access", View("pages/rights/acls.html", acls)),
        ("/access/users", View("pages/rights/users.html", users)),
        ("/access/quotas", View("pages/rights/quotas.html", quotas)),
    ),
    needs_brokers=True,
)
