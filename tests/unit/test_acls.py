"""Access control lists: the index against their definition, and the rules that surprise."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from txn.security.acls import (
    CLUSTER_NAME,
    EVERYONE,
    Acl,
    AclFilter,
    AclIndex,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    Requester,
    ResourceType,
    Verdict,
    acl_fault,
    split_super_users,
)

ADA, BOB = "User:ada", "User:bob"
HERE = "10.0.0.1"

names = st.sampled_from(["a", "ab", "abc", "b", "ba", "*"])
acls = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([ADA, BOB, EVERYONE]),
    st.sampled_from(["*", HERE, "10.0.0.2"]),
    st.sampled_from(
        [
            Operation.ALL,
            Operation.READ,
            Operation.WRITE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ]
    ),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
requesters = st.builds(Requester, st.sampled_from([ADA, BOB]), st.just(HERE))
operations = st.sampled_from(
    [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS]
)


def topic_acl(
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    *,
    name: str = "pay",
    pattern: PatternType = PatternType.LITERAL,
    principal: str = ADA,
    host: str = "*",
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, principal, host, operation, permission)


GOOD = topic_acl(Operation.READ)


def names_resource(acl: Acl, kind: ResourceType, name: str) -> bool:
    if acl.resource_type is not kind:
        return False
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def is_for(acl: Acl, requester: Requester) -> bool:
    return acl.principal in (requester.principal, EVERYONE) and acl.host in ("*", requester.host)


IMPLIED = {
    (Operation.READ, Operation.DESCRIBE),
    (Operation.WRITE, Operation.DESCRIBE),
    (Operation.DELETE, Operation.DESCRIBE),
    (Operation.ALTER, Operation.DESCRIBE),
    (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
}


def defined_verdict(
    entries: Iterable[Acl],
    requester: Requester,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> Verdict:
    """The definition, entry by entry."""
    naming = [acl for acl in entries if names_resource(acl, kind, name)]
    meant = [acl for acl in naming if is_for(acl, requester)]
    same = [acl for acl in meant if acl.operation in (Operation.ALL, operation)]
    if any(acl.permission is Permission.DENY for acl in same):
        return Verdict.DENIED
    implying = [acl for acl in meant if (acl.operation, operation) in IMPLIED]
    if any(acl.permission is Permission.ALLOW for acl in same + implying):
        return Verdict.ALLOWED
    return Verdict.DENIED if naming else Verdict.NO_ENTRY


def defined_any(
    entries: Iterable[Acl], requester: Requester, operation: Operation, kind: ResourceType
) -> bool:
    """Say that some pattern allows names that no pattern denies as a whole."""
    meant = [
        acl
        for acl in entries
        if acl.resource_type is kind
        and is_for(acl, requester)
        and acl.operation in (Operation.ALL, operation)
    ]
    denied = [acl for acl in meant if acl.permission is Permission.DENY]

    def covers(deny: Acl, allow: Acl) -> bool:
        if deny.pattern_type is PatternType.LITERAL and deny.resource_name == "*":
            return True
        if allow.pattern_type is PatternType.LITERAL and allow.resource_name == "*":
            return False
        if deny.pattern_type is PatternType.PREFIXED:
            return allow.resource_name.startswith(deny.resource_name)
        return allow.pattern_type is PatternType.LITERAL and (
            allow.resource_name == deny.resource_name
        )

    return any(
        not any(covers(deny, allow) for deny in denied)
        for allow in meant
        if allow.permission is Permission.ALLOW
    )


@given(st.lists(acls), requesters, operations, names)
@example(
    [topic_acl(Operation.READ, Permission.DENY)], Requester(ADA, HERE), Operation.DESCRIBE, "pay"
)
def test_the_index_decides_as_the_definition(
    entries: list[Acl], requester: Requester, operation: Operation, name: str
) -> None:
    kind = ResourceType.TOPIC
    expected = defined_verdict(entries, requester, operation, kind, name)
    assert AclIndex.of(entries).verdict(requester, operation, kind, name) is expected


@given(st.lists(acls), requesters, operations)
def test_any_resource_of_a_type_is_decided_as_defined(
    entries: list[Acl], requester: Requester, operation: Operation
) -> None:
    kind = ResourceType.TOPIC
    expected = defined_any(entries, requester, operation, kind)
    assert AclIndex.of(entries).allows_any(requester, operation, kind) is expected


@given(st.lists(acls, unique=True), st.lists(acls, unique=True), requesters, operations, names)
def test_an_index_that_was_changed_decides_as_one_made_anew(
    before: list[Acl], after: list[Acl], requester: Requester, operation: Operation, name: str
) -> None:
    added = [acl for acl in after if acl not in before]
    removed = [acl for acl in before if acl not in after]
    first = AclIndex.of(before)
    changed = first.changed(added, removed)
    question = (requester, operation, ResourceType.TOPIC, name)
    assert changed.verdict(*question) is defined_verdict(after, *question)
    assert first.verdict(*question) is defined_verdict(before, *question)


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:7", "2001:db8::7"),
        ("::ffff:10.0.0.1", HERE),
    ],
)
def test_an_address_is_denied_however_it_is_written(written: str, host: str) -> None:
    authorizer = Authorizer()
    denial = topic_acl(Operation.READ, Permission.DENY, host=written)
    authorizer.load([topic_acl(Operation.READ), denial])
    question = (Operation.READ, ResourceType.TOPIC, "pay")
    assert not authorizer.allows(Requester(ADA, host), *question)
    assert authorizer.allows(Requester(ADA, "2001:db8::8"), *question)
    authorizer.change([], [denial])
    assert authorizer.allows(Requester(ADA, host), *question)


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.0.0.0/8", ("10.0.0.0", "10.255.255.255"), ("11.0.0.0", "::a00:1")),
        ("::ffff:10.0.0.0/104", ("10.0.0.1",), ("11.0.0.0",)),
        ("10.1.2.3/8", ("10.0.0.1",), ("11.0.0.0",)),  # any address of it stands for it
        ("10.1.2.3/32", ("10.1.2.3",), ("10.1.2.2",)),
        ("0.0.0.0/0", ("1.2.3.4",), ("::1",)),
        ("2001:db8::/32", ("2001:db8::7",), ("2001:db9::7", "32.1.13.184")),
        ("10.0.0.0/255.0.0.0", (), ("10.0.0.1",)),
        ("10.0.0.0/33", (), ("10.0.0.1",)),
        ("10.0.0.0/", (), ("10.0.0.1",)),
        ("/8", (), ("10.0.0.1",)),
        ("host/8", (), ("host", "10.0.0.1")),
    ],
)
def test_a_host_may_be_a_network(
    network: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    """KIP-1276. An entry that is none may be stored by another broker; it stands for nobody."""
    authorizer = Authorizer()
    allowed = topic_acl(Operation.READ, host=network)
    authorizer.load([allowed])
    question = (Operation.READ, ResourceType.TOPIC, "pay")
    assert all(authorizer.allows(Requester(ADA, host), *question) for host in inside)
    assert not any(authorizer.allows(Requester(ADA, host), *question) for host in outside)
    assert (acl_fault(allowed) is None) is bool(inside)


def test_a_host_that_is_no_address_is_taken_as_it_is() -> None:
    authorizer = Authorizer()
    authorizer.load([topic_acl(Operation.READ, host="a:b")])
    assert not authorizer.allows(Requester(ADA, HERE), Operation.READ, ResourceType.TOPIC, "pay")


def test_a_super_user_passes_every_denial() -> None:
    authorizer = Authorizer({ADA})
    authorizer.load([topic_acl(Operation.ALL, Permission.DENY)])
    assert authorizer.allows(Requester(ADA, HERE), Operation.READ, ResourceType.TOPIC, "pay")


@pytest.mark.parametrize("default", [True, False])
def test_the_default_counts_only_where_no_entry_names_the_resource(default: bool) -> None:
    authorizer = Authorizer(allows_if_no_acl=default)
    authorizer.load([topic_acl(Operation.READ, principal=BOB)])
    ada = Requester(ADA, HERE)
    assert not authorizer.allows(ada, Operation.READ, ResourceType.TOPIC, "pay")
    assert authorizer.allows(ada, Operation.READ, ResourceType.TOPIC, "other") is default


def test_an_idempotent_producer_needs_to_write_some_topic_that_need_not_exist() -> None:
    authorizer = Authorizer()
    ada = Requester(ADA, HERE)
    assert not authorizer.allows_any(ada, Operation.WRITE, ResourceType.TOPIC)
    authorizer.load([topic_acl(Operation.WRITE, pattern=PatternType.PREFIXED)])
    assert authorizer.allows_any(ada, Operation.WRITE, ResourceType.TOPIC)


def test_allowed_operations_are_told_as_bits() -> None:
    authorizer = Authorizer()
    authorizer.load([topic_acl(Operation.READ)])
    bits = authorizer.operations(Requester(ADA, HERE), ResourceType.TOPIC, "pay")
    assert bits == 1 << Operation.READ | 1 << Operation.DESCRIBE


def test_a_match_filter_selects_every_pattern_that_names_the_resource() -> None:
    wanted = AclFilter(
        ResourceType.ANY,
        "pay",
        PatternType.MATCH,
        None,
        None,
        Operation.ANY,
        Permission.ANY,
    )
    selected = [
        topic_acl(Operation.READ),
        topic_acl(Operation.READ, name="*"),
        topic_acl(Operation.READ, name="p", pattern=PatternType.PREFIXED),
    ]
    others = [
        topic_acl(Operation.READ, name="p"),
        topic_acl(Operation.READ, name="*", pattern=PatternType.PREFIXED),
        topic_acl(Operation.READ, name="pays", pattern=PatternType.PREFIXED),
    ]
    assert [acl for acl in selected + others if wanted.matches(acl)] == selected


@pytest.mark.parametrize(
    ("acl", "fault"),
    [
        (GOOD, None),
        (GOOD._replace(resource_type=ResourceType.CLUSTER, resource_name=CLUSTER_NAME), None),
        (GOOD._replace(resource_type=ResourceType.CLUSTER), "only valid name for the CLUSTER"),
        (GOOD._replace(resource_name=""), "empty resource name"),
        (GOOD._replace(resource_type=ResourceType.ANY), "resourceType ANY"),
        (GOOD._replace(pattern_type=PatternType.MATCH), "patternType MATCH"),
        (GOOD._replace(operation=Operation.ANY), "operation ANY"),
        (GOOD._replace(permission=Permission.ANY), "permissionType ANY"),
        (GOOD._replace(principal="ada"), "no colon"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(acl: Acl, fault: str | None) -> None:
    found = acl_fault(acl)
    assert found is None if fault is None else fault in (found or "")


def test_super_users_are_parted_by_semicolons() -> None:
    assert split_super_users(" User:CN=a,O=b ; User:bob;") == {"User:CN=a,O=b", "User:bob"}
    with pytest.raises(ValueError, match="bob"):
        split_super_users("bob")
