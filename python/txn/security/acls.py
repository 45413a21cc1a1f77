"""Access control lists: Kafka's model of resources, patterns and verdicts.

Pure. An entry allows or denies one operation, or all, to a principal from a host, on the
resources that its pattern names. A request is allowed where an entry allows it and none denies
it. Where no entry names the resource at all, the answer is that of
`allow.everyone.if.no.acl.found`.

READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. Only entries
that allow imply: DENY READ denies no DESCRIBE.

Sources: KIP-11, KIP-290 (prefixed patterns), KIP-679 (any resource of a type), KIP-801,
KIP-1276 (networks); the decisions of Apache Kafka's StandardAuthorizer.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple, Self
from uuid import UUID

from txn.security.acl_hosts import ADDRESS_MAX, is_in_network, network_of, short_form

WILDCARD: Final = "*"
"""Stands for any name in a literal pattern, and for any host."""

EVERYONE: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class ResourceType(IntEnum):
    """Types of resources, by their numbers on the wire."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Types of resource patterns; ANY and MATCH are of filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operations on resources, by their numbers on the wire."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """The effect of an entry, by its number on the wire."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operation → the allowed operations that imply it."""

OPERATIONS_OF: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.DESCRIBE,
        Operation.WRITE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that make sense on a type; Metadata and others return them as bits."""


class Acl(NamedTuple):
    """One access control entry and the pattern of its resources."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """Selects entries; None and ANY select all.

    The pattern type MATCH selects every pattern that names the resource: the literal one, the
    wildcard, and prefixes of the name.
    """

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Return True if the filter selects an entry."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern_type is PatternType.MATCH:
            if name is None or name == acl.resource_name:
                return True
            if acl.pattern_type is PatternType.PREFIXED:
                return name.startswith(acl.resource_name)
            return acl.resource_name == WILDCARD
        is_of_type = self.pattern_type in (PatternType.ANY, acl.pattern_type)
        return is_of_type and name in (None, acl.resource_name)


class Requester(NamedTuple):
    """The principal of a session and the address it comes from."""

    principal: str
    host: str


class Verdict(IntEnum):
    """The outcome of the entries for one question."""

    NO_ENTRY = 0
    """No entry names the resource, for any principal."""
    DENIED = 1
    ALLOWED = 2


Pattern = tuple[PatternType, str]
EntriesOfPattern = Mapping[str, tuple[Acl, ...]]
"""Principal → its entries."""

_NOTHING: Final[Mapping[Pattern, EntriesOfPattern]] = MappingProxyType({})


class _Patterns(NamedTuple):
    """The patterns of one resource type."""

    entries: Mapping[Pattern, EntriesOfPattern] = _NOTHING
    prefix_lengths: tuple[int, ...] = ()
    """The lengths of prefixed patterns, each once."""


_NO_PATTERNS: Final = _Patterns()


class AclIndex:
    """Entries, found by their resources and principals. It never changes: `changed` makes another.

    Cost of a check: one look-up for each length that a prefixed pattern has, with any number of
    entries. Then it reads the entries of the principal and of everyone on the patterns found.
    """

    def __init__(self, of_type: Mapping[ResourceType, _Patterns] | None = None) -> None:
        self._of_type = of_type or {}

    @classmethod
    def of(cls, acls: Iterable[Acl]) -> Self:
        """Index entries."""
        return cls()._changed(acls, ())

    def changed(self, added: Iterable[Acl], removed: Iterable[Acl]) -> Self:
        """The index with some entries more and some less.

        Cost: one step for each pattern of the types that change.
        """
        return self._changed(added, removed)

    def _changed(self, added: Iterable[Acl], removed: Iterable[Acl]) -> Self:
        fresh: dict[ResourceType, dict[Pattern, dict[str, list[Acl]]]] = {}
        for acl in removed:
            entries = self._opened(fresh, acl)
            if acl in entries:
                entries.remove(acl)
        for acl in added:
            entries = self._opened(fresh, acl)
            if acl not in entries:
                entries.append(acl)
        of_type = dict(self._of_type)
        for kind, patterns in fresh.items():
            of_type[kind] = _merged(of_type.get(kind, _NO_PATTERNS), patterns)
        return type(self)(of_type)

    def _opened(
        self, fresh: dict[ResourceType, dict[Pattern, dict[str, list[Acl]]]], acl: Acl
    ) -> list[Acl]:
        """The entries beside an entry, in lists that may change."""
        kind, pattern = acl.resource_type, (acl.pattern_type, acl.resource_name)
        patterns = fresh.setdefault(kind, {})
        if pattern not in patterns:
            known = self._of_type.get(kind, _NO_PATTERNS).entries.get(pattern, {})
            patterns[pattern] = {principal: list(entries) for principal, entries in known.items()}
        return patterns[pattern].setdefault(acl.principal, [])

    def verdict(
        self, requester: Requester, operation: Operation, kind: ResourceType, name: str
    ) -> Verdict:
        """Decide on an operation on one resource."""
        verdict = Verdict.NO_ENTRY
        allowing = (operation, Operation.ALL, *IMPLIED_BY.get(operation, ()))
        for entries in self._naming(kind, name):
            verdict = verdict or Verdict.DENIED  # some entry names it: none allowed it yet
            for acl in _of(entries, requester):
                if acl.permission is Permission.ALLOW:
                    if acl.operation in allowing:
                        verdict = Verdict.ALLOWED
                elif acl.operation in (operation, Operation.ALL):
                    return Verdict.DENIED
        return verdict

    def allows_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        """Return True if entries allow an operation on some resource of a type.

        It need not exist. An operation that implies another does not count here. Source: KIP-679.
        """
        allowed: list[Pattern] = []
        denied: set[Pattern] = set()
        for pattern, entries in self._of_type.get(kind, _NO_PATTERNS).entries.items():
            for acl in _of(entries, requester):
                if acl.operation not in (operation, Operation.ALL):
                    continue
                if acl.permission is Permission.ALLOW:
                    allowed.append(pattern)
                else:
                    denied.add(pattern)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_overruled(pattern, denied) for pattern in allowed)

    def _naming(self, kind: ResourceType, name: str) -> Iterator[EntriesOfPattern]:
        """The entries of each pattern that names a resource."""
        entries, prefix_lengths = self._of_type.get(kind, _NO_PATTERNS)
        literal = {(PatternType.LITERAL, name), (PatternType.LITERAL, WILDCARD)}
        prefixed = (
            (PatternType.PREFIXED, name[:length])
            for length in prefix_lengths
            if length <= len(name)
        )
        for pattern in chain(literal, prefixed):
            found = entries.get(pattern)
            if found is not None:
                yield found


def _merged(before: _Patterns, fresh: Mapping[Pattern, Mapping[str, Iterable[Acl]]]) -> _Patterns:
    entries = dict(before.entries)
    for pattern, by_principal in fresh.items():
        kept = {principal: tuple(acls) for principal, acls in by_principal.items() if acls}
        if kept:
            entries[pattern] = kept
        else:
            entries.pop(pattern, None)
    lengths = {len(name) for kind, name in entries if kind is PatternType.PREFIXED}
    return _Patterns(entries, tuple(sorted(lengths)))


def _of(entries: EntriesOfPattern, requester: Requester) -> Iterator[Acl]:
    """The entries for a principal and its host."""
    principal, host = requester
    for name in {principal, EVERYONE}:
        for acl in entries.get(name, ()):
            if (
                acl.host in (WILDCARD, host)
                or short_form(acl.host) == host
                or is_in_network(host, acl.host)
            ):
                yield acl


def _is_overruled(allowed: Pattern, denied: set[Pattern]) -> bool:
    """Return True if an allowed pattern names nothing that is not denied."""
    kind, name = allowed
    if allowed == (PatternType.LITERAL, WILDCARD):
        return False
    if kind is PatternType.LITERAL and allowed in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))


class Authorizer:
    """Kafka's StandardAuthorizer: decides by entries, super users and the default.

    Any thread may ask; one changes the entries.

    Args:
        super_users: Principals that may do everything.
        allows_if_no_acl: The answer where no entry names a resource.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allows_if_no_acl: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self._default = allows_if_no_acl
        self._index = AclIndex()

    def change(self, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        """Apply a change of the entries."""
        self._index = self._index.changed(added, removed)

    def load(self, acls: Iterable[Acl]) -> None:
        """Replace all entries."""
        self._index = AclIndex.of(acls)

    def allows(
        self, requester: Requester, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Return True if an operation on one resource is allowed."""
        if requester.principal in self.super_users:
            return True
        verdict = self._index.verdict(requester, operation, kind, name)
        return self._default if verdict is Verdict.NO_ENTRY else verdict is Verdict.ALLOWED

    def allows_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        """Return True if an operation is allowed on some resource of a type, be it there or not.

        As in Kafka, a resource with an arbitrary name is asked for first.
        """
        return self.allows(requester, operation, kind, "hardcode") or self._index.allows_any(
            requester, operation, kind
        )

    def operations(self, requester: Requester, kind: ResourceType, name: str) -> int:
        """The allowed operations on a resource, one bit each."""
        return operation_bits(
            operation
            for operation in OPERATIONS_OF[kind]
            if self.allows(requester, operation, kind, name)
        )


def operation_bits(operations: Iterable[Operation]) -> int:
    """Operations as the bits of an int32."""
    return sum(1 << operation for operation in operations)


def matching(acls: Mapping[UUID, Acl], wanted: AclFilter) -> dict[UUID, Acl]:
    """The entries that a filter selects, by their ids."""
    return {key: acl for key, acl in acls.items() if wanted.matches(acl)}


def acl_fault(acl: Acl) -> str | None:
    """Return the reason why an entry cannot be stored, None if it can.

    The texts are those of Apache Kafka.
    """
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        return f"Invalid permissionType {acl.permission.name}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    if "/" in acl.host and (len(acl.host) > ADDRESS_MAX or network_of(acl.host) is None):
        return f"Invalid CIDR notation '{acl.host}': it takes an address and a number of bits"
    return None


def filter_fault(wanted: AclFilter) -> str | None:
    """Return the reason why a filter deletes nothing, in Kafka's words; None if it may."""
    if 0 in (wanted.resource_type, wanted.pattern_type):
        return "Unknown patternFilter."
    if 0 in (wanted.operation, wanted.permission):
        return "Unknown entryFilter."
    return None


def split_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`. Raises ValueError: one of them has no type."""
    users = frozenset(user for user in (part.strip() for part in text.split(";")) if user)
    for user in users:
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise ValueError(user)
    return users
