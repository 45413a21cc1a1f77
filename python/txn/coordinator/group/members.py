"""The members of a group, and the sums and indexes that keep a question about them cheap.

Pure. A `Member` and the `Members` of a group never change; a change makes new ones. Its cost is one
copy of the index, and no walk over the protocols of every member. So a request that names
thousands of members takes them out in one step, `without`.

Sizes are about those of the objects in memory: a fixed cost, and the text and the data of clients.
"""

from collections.abc import Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Final, NamedTuple, Self

MEMBER_BYTES: Final = 1_024
PROTOCOL_BYTES: Final = 256
"""Fixed cost of a member, and of each of its protocols."""

WIDEST_CHARACTER: Final = 4

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of the assignors a member can use, the preferred one first."""


def text_bytes(text: str | None) -> int:
    """About the memory of a text's characters: four bytes each if not all are ASCII."""
    if text is None:
        return 0
    return len(text) if text.isascii() else WIDEST_CHARACTER * len(text)


def protocols_bytes(protocols: Protocols) -> int:
    """The size of a member's own data, with the fixed cost of each protocol."""
    return sum(PROTOCOL_BYTES + text_bytes(name) + len(data) for name, data in protocols)


class Member(NamedTuple):
    """One member of a group.

    `awaiting_join` and `awaiting_sync` are the tickets of requests that wait. `is_new` until its
    first generation.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    session_deadline_ms: int
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: int | None = None
    awaiting_sync: int | None = None

    @property
    def size_bytes(self) -> int:
        """Its ids, its own data and its assignment."""
        return (
            member_bytes(self.member_id, self.instance_id, self.client_id, self.client_host)
            + protocols_bytes(self.protocols)
            + len(self.assignment)
        )

    @property
    def deadline_ms(self) -> int | None:
        """When the member is given up; None while it waits for us."""
        is_waiting = self.awaiting_join is not None or self.awaiting_sync is not None
        return None if is_waiting and not self.is_new else self.session_deadline_ms

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol; empty if it does not know it."""
        return next((data for name, data in self.protocols if name == protocol), b"")


def member_bytes(*names: str | None) -> int:
    """The size of a member with these ids and names, without its data."""
    return MEMBER_BYTES + sum(map(text_bytes, names))


class Members(Mapping[str, Member]):
    """Member id → member, in the order they joined. Immutable."""

    __slots__ = ("_by_id", "_by_instance", "_speakers", "size_bytes")

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._speakers: dict[str, int] = {}
        """Protocol → number of members that speak it."""
        self.size_bytes = 0
        for member in members:
            self._add(member)

    # ---- changes

    def with_member(self, member: Member) -> Self:
        """These members and another one, or one in the place of its former state."""
        before = self._by_id.get(member.member_id)
        is_known_so = (
            before is not None
            and before.protocols is member.protocols
            and before.instance_id == member.instance_id
        )
        changed = self._duplicate(shares_indexes=is_known_so)
        if before is not None and is_known_so:
            changed._by_id[member.member_id] = member
            changed.size_bytes += member.size_bytes - before.size_bytes
            return changed
        if before is not None:
            changed._drop(before)
        changed._add(member)
        return changed

    def without(self, member_ids: Iterable[str]) -> Self:
        """These members but some. Cost: one copy, however many they are."""
        changed = self._duplicate()
        for member_id in member_ids:
            changed._drop(changed._by_id[member_id])
            del changed._by_id[member_id]
        return changed

    def _duplicate(self, *, shares_indexes: bool = False) -> Self:
        copied = type(self)()
        copied._by_id = self._by_id.copy()
        copied._by_instance = self._by_instance if shares_indexes else self._by_instance.copy()
        copied._speakers = self._speakers if shares_indexes else self._speakers.copy()
        copied.size_bytes = self.size_bytes
        return copied

    def _add(self, member: Member) -> None:
        self._by_id[member.member_id] = member  # keeps the place of a former state
        if member.instance_id is not None:
            self._by_instance.setdefault(member.instance_id, member.member_id)
        for name in _names(member):
            self._speakers[name] = self._speakers.get(name, 0) + 1
        self.size_bytes += member.size_bytes

    def _drop(self, member: Member) -> None:
        """Take a member out of the indexes and the sum."""
        instance_id = member.instance_id
        if instance_id is not None and self._by_instance.get(instance_id) == member.member_id:
            del self._by_instance[instance_id]
        for name in _names(member):
            left = self._speakers[name] - 1
            if left:
                self._speakers[name] = left
            else:
                del self._speakers[name]
        self.size_bytes -= member.size_bytes

    # ---- questions

    def of_instance(self, instance_id: str) -> Member | None:
        """The member that holds an instance id."""
        member_id = self._by_instance.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def all_speak(self, protocol: str) -> bool:
        """Say whether every member speaks a protocol."""
        return self._speakers.get(protocol, 0) == len(self._by_id)

    def common_protocols(self) -> set[str]:
        """The protocols that every member speaks. Cost: the protocols of one member."""
        first = next(iter(self._by_id.values()), None)
        return set() if first is None else {n for n, _ in first.protocols if self.all_speak(n)}

    # ---- a mapping

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def keys(self) -> KeysView[str]:
        """The ids."""
        return self._by_id.keys()

    def values(self) -> ValuesView[Member]:
        """The members."""
        return self._by_id.values()

    def items(self) -> ItemsView[str, Member]:
        """Ids and members."""
        return self._by_id.items()

    def __repr__(self) -> str:
        return f"Members({list(self._by_id.values())!r})"


def _names(member: Member) -> Collection[str]:
    """The protocols of a member, each once."""
    return {name for name, _ in member.protocols}
