"""A consumer of the classic protocol, as far as the model of migrations needs one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

TOPICS = ("a", "b")


@dataclass
class ClassicClient:
    """A consumer of the classic protocol. An eager one stops reading before it joins."""

    instance_id: str | None
    topics: tuple[str, ...]
    is_eager: bool
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    reads: set[tuple[str, int]] = field(default_factory=set)
    needs_join: bool = True
    needs_sync: bool = False
    waits: bool = False
    leads: Sequence[tuple[str, str | None, bytes]] = ()
    skips_assignment: bool = False
    dealt: dict[str, int] = field(default_factory=dict)
    """The partitions of each topic when it assigned them, as the leader."""

    def subscription(self) -> bytes:
        def text(name: str) -> bytes:
            return len(name).to_bytes(2, "big") + name.encode()

        by_topic = {topic: [p for name, p in self.reads if name == topic] for topic in TOPICS}
        owned = b"".join(
            text(topic)
            + len(parts).to_bytes(4, "big")
            + b"".join(p.to_bytes(4, "big") for p in parts)
            for topic, parts in by_topic.items()
        )
        names = b"".join(map(text, self.topics))
        null = b"\xff\xff\xff\xff"
        count = len(self.topics).to_bytes(4, "big")
        return b"\0\1" + count + names + null + len(by_topic).to_bytes(4, "big") + owned

    def forget(self) -> None:
        """Lose everything, and join again as a new member."""
        self.member_id, self.generation = "", -1
        self.needs_join, self.needs_sync, self.waits = True, False, False
        self.reads.clear()
