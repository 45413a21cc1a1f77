"""One group on both brokers: requests that may wait go out, answers are compared as they come.

Each client has a connection of its own to each broker. A request of a client goes to both. Then
both brokers are watched until they agree: the same requests wait, and the group is described alike.
The ids that the brokers give to members get labels, in the order in which they were given.

Kafka chooses among members by the order of a hash table: the next leader, and the assignor if there
is a tie of votes. Where the brokers have chosen differently, a history ends. It also ends where a
group has no place for one of its members that joins again. Both remove that member. Then Kafka lets
the others wait for it until the rebalance timeout.
"""

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

import txn
from differential.names import Names
from differential.plain import plain
from harnesses.peers.jars import JarSet
from harnesses.peers.kafka import KafkaNode
from support.clients import POLL_S, create_topic
from support.entities import entity_builder
from support.tagged import encode_plainly
from support.wire_client import RawConnection

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE = 11, 12, 13, 14, 15
FIND_COORDINATOR, OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE = 10, 8, 42, 47

SETTLE_S: Final = 20.0
AGREEMENTS: Final = 2
AGREEMENTS_OF_ALL: Final = 20
"""Both brokers must look alike so often in turn. Each look lets them get on. The second number is
for a round that everybody has joined, which may be about to end.
"""

CLIENTS: Final = 4
INSTANCES: Final = (None, None, "i", "j")
"""The instance ids of the clients."""

INSTANCES_FROM: Final = 5
"""The first version of JoinGroup with them."""

COMMITS_FROM: Final = 5
"""The first version of OffsetCommit without a retention time."""

PREPARING: Final = "PreparingRebalance"

Values = Mapping[str, Any]


class DifferentChoiceError(Exception):
    """Both brokers are right, and have chosen another leader or assignor."""


class DifferenceError(Exception):
    """The brokers do not agree. Has the history up to there."""


def subscription(*topics: str) -> bytes:
    """A subscription of the consumer protocol, version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Line:
    """A client's connection to one broker, with at most one request that waits."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._connection: RawConnection | None = None
        self._asked: tuple[int, int] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._asked is not None

    def close(self) -> None:
        """Close the connection. The request that waits is not answered."""
        self._asked = None
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def send(self, api_key: int, version: int, values: Values) -> None:
        if self._connection is None:
            self._connection = RawConnection(self._servers)
        schema = load_request_schema(api_key, version)
        body = encode_plainly(entity_builder(schema)(values))
        self._connection.send_body(api_key, version, body)
        self._asked = api_key, version

    def poll(self) -> dict[str, Any] | None:
        """The answer, if it is there."""
        if self._asked is None or self._connection is None or self._connection.has_nothing():
            return None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The answer, waited for."""
        assert self._asked is not None
        assert self._connection is not None
        asked, self._asked = self._asked, None
        body = self._connection.receive_body(*asked)
        entity, _ = entity_reader(load_response_schema(*asked))(body, 0)
        answer = plain(entity, Names())
        answer.pop("throttle_time", None)
        return answer


class Half:
    """One broker: the lines of all clients, and the labels of its members."""

    def __init__(self, servers: str) -> None:
        self.lines = [Line(servers) for _ in range(CLIENTS)]
        self._watcher = Line(servers)
        self._labels: dict[str, str] = {}
        self._ids: dict[str, str] = {}

    def close(self) -> None:
        for line in (*self.lines, self._watcher):
            line.close()

    def forget(self) -> None:
        """Begin another history."""
        for line in self.lines:
            line.close()
        self._labels, self._ids = {}, {}

    def bind(self, label: str, member_id: str) -> None:
        self._labels[member_id], self._ids[label] = label, member_id

    def knows(self, member_id: str) -> bool:
        return member_id in self._labels

    def resolved(self, value: Any) -> Any:
        """A request with member ids in the place of labels."""
        if isinstance(value, str):
            return self._ids.get(value, value)
        if isinstance(value, Mapping):
            return {name: self.resolved(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolved(item) for item in value]
        return value

    def labelled(self, value: Any) -> Any:
        """An answer with labels in the place of member ids, and lists in one order."""
        if isinstance(value, str):
            return self._labels.get(value, value)
        if isinstance(value, Mapping):
            return {name: self.labelled(item) for name, item in value.items()}
        if isinstance(value, list):
            return sorted((self.labelled(item) for item in value), key=str)
        return value

    def ask(self, api_key: int, version: int, values: Values) -> dict[str, Any]:
        """A request that does not wait, beside those of the clients."""
        self._watcher.send(api_key, version, self.resolved(values))
        return self._watcher.answer()

    def wake(self) -> None:
        """Wait until the coordinator of groups is there."""
        asked = {
            "group_id": "first",
            "generation_id": 0,
            "member_id": "",
            "group_instance_id": None,
        }
        deadline = time.monotonic() + SETTLE_S
        while self.ask(HEARTBEAT, 4, asked)["error_code"] != "unknown_member_id":
            assert time.monotonic() < deadline, "there is no coordinator"
            self.ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["first"]})

    def described(self, group: str) -> Any:
        """The group; a member without a label has not been told its id yet."""
        answer = self.ask(DESCRIBE, 4, {"groups": [group], "include_authorized_operations": False})
        (told,) = answer["groups"]
        for member in told["members"]:
            if not self.knows(member["member_id"]):
                member["member_id"] = "?"
        return self.labelled(told)


@dataclass(slots=True)
class Client:
    """The knowledge of one client."""

    instance_id: str | None
    member: str = ""
    generation: int = -1
    is_leader: bool = False
    members: Sequence[str] = ()
    protocol: str | None = None


@dataclass(slots=True)
class Rounds:
    """Carries a history out on both brokers."""

    txn: Half
    kafka: Half
    group: str = ""
    topic: str = ""
    clients: list[Client] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    _count: int = 0

    def begin(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.clients = [Client(instance_id) for instance_id in INSTANCES]
        self.history = []
        self._count = 0
        for half in self._halves:
            half.forget()

    @property
    def _halves(self) -> tuple[Half, Half]:
        return self.txn, self.kafka

    # ------------------------------------------------------------ requests

    def join(self, who: int, version: int, protocols: Sequence[str], **times: int) -> None:
        client = self.clients[who]
        if client.instance_id is not None:
            version = max(version, INSTANCES_FROM)
        values = {
            "group_id": self.group,
            "session_timeout": times.get("session_ms", 30_000),
            "rebalance_timeout": times.get("rebalance_ms", 60_000),
            "member_id": client.member,
            "group_instance_id": client.instance_id,
            "protocol_type": "consumer",
            "protocols": [
                {"name": name, "metadata": subscription(self.topic)} for name in protocols
            ],
            "reason": None,
        }
        self._send(who, JOIN, version, values)

    def sync(self, who: int, version: int, step: int = 0) -> None:
        client = self.clients[who]
        assigned = client.members if client.is_leader else ()
        values = {
            "group_id": self.group,
            "generation_id": client.generation + step,
            "member_id": client.member,
            "group_instance_id": client.instance_id,
            "protocol_type": "consumer",
            "protocol_name": client.protocol,
            "assignments": [
                {"member_id": member, "assignment": f"{client.generation} {member}".encode()}
                for member in assigned
            ],
        }
        self._send(who, SYNC, version, values)

    def heartbeat(self, who: int, version: int, step: int = 0, member: str | None = None) -> None:
        client = self.clients[who]
        values = {
            "group_id": self.group,
            "generation_id": client.generation + step,
            "member_id": client.member if member is None else member,
            "group_instance_id": client.instance_id,
        }
        self._send(who, HEARTBEAT, version, values)

    def leave(self, who: int, version: int, *, by_instance: bool = False) -> None:
        client = self.clients[who]
        instance_id = client.instance_id
        member = "" if by_instance and instance_id is not None else client.member
        one = {"member_id": member, "group_instance_id": instance_id, "reason": None}
        values = {"group_id": self.group, "member_id": client.member, "members": [one]}
        self._send(who, LEAVE, version, values)

    def commit(self, who: int, version: int, step: int = 0) -> None:
        client = self.clients[who]
        version = max(version, COMMITS_FROM)
        partition = {
            "partition_index": 0,
            "committed_offset": 7,
            "committed_leader_epoch": -1,
            "committed_metadata": "m",
        }
        values = {
            "group_id": self.group,
            "generation_id_or_member_epoch": client.generation + step,
            "member_id": client.member,
            "group_instance_id": client.instance_id,
            "topics": [{"name": self.topic, "partitions": [partition]}],
        }
        self._send(who, OFFSET_COMMIT, version, values)

    def delete(self) -> None:
        self.beside(DELETE_GROUPS, 2, {"groups_names": [self.group]})

    def delete_offsets(self) -> None:
        topics = [{"name": self.topic, "partitions": [{"partition_index": 0}]}]
        self.beside(OFFSET_DELETE, 0, {"group_id": self.group, "topics": topics})

    def restart(self, who: int) -> None:
        """A client that lost its memory and its connection."""
        self.history.append(f"client {who} restarts")
        self.clients[who] = Client(INSTANCES[who])
        self._hang_up(who)

    def beside(self, api_key: int, version: int, values: Values) -> Any:
        """A request that does not wait, on another connection."""
        ours, theirs = (half.labelled(half.ask(api_key, version, values)) for half in self._halves)
        self._note(f"beside: {api_key} v{version} {values}", ours, theirs)
        self.settle()
        return ours

    # ------------------------------------------------------------ both brokers

    def _hang_up(self, who: int) -> None:
        for half in self._halves:
            half.lines[who].close()

    def _send(self, who: int, api_key: int, version: int, values: Values) -> None:
        if any(half.lines[who].is_waiting for half in self._halves):
            self._hang_up(who)  # a client asks again on another connection
        self.history.append(f"client {who}: {api_key} v{version} {values}")
        for half in self._halves:
            half.lines[who].send(api_key, version, half.resolved(values))
        self.settle()

    def settle(self) -> None:
        """Wait until both brokers look alike. Raises DifferenceError if they never do."""
        answers: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        agreements = 0
        deadline = time.monotonic() + SETTLE_S
        needed = AGREEMENTS
        while agreements < needed:
            for half, found in zip(self._halves, answers, strict=True):
                for who, line in enumerate(half.lines):
                    answer = line.poll()
                    if answer is not None:
                        found[who] = answer
            for who in sorted(answers[0].keys() & answers[1].keys()):
                self._take(who, answers[0].pop(who), answers[1].pop(who))
            seen = [self._look(half) for half in self._halves]
            is_alike = seen[0] == seen[1] and not any(answers)
            agreements = agreements + 1 if is_alike else 0
            waiting, group = seen[0]
            is_complete = group["group_state"] == PREPARING and len(waiting) >= len(
                group["members"]
            )
            needed = AGREEMENTS_OF_ALL if is_complete else AGREEMENTS
            if not is_alike:
                time.sleep(POLL_S)
            if time.monotonic() > deadline:
                self._note("at last", (seen[0], answers[0]), (seen[1], answers[1]))
                raise DifferenceError("\n".join(self.history))

    def until(self, is_so: Callable[[Any], bool]) -> None:
        """Wait until the group's description is so on both brokers, then until they agree."""
        for half in self._halves:
            deadline = time.monotonic() + SETTLE_S
            while not is_so(half.described(self.group)):
                assert time.monotonic() < deadline, "\n".join(self.history)
                time.sleep(POLL_S)
        self.settle()

    def _look(self, half: Half) -> Any:
        waiting = [who for who, line in enumerate(half.lines) if line.is_waiting]
        return waiting, half.described(self.group)

    def _take(self, who: int, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        """Compare two answers to one request of a client, which learns from them."""
        self._learn_ids([[ours], [theirs]])
        members = [answer.get("members", ()) for answer in (ours, theirs)]
        for instance_id in set(INSTANCES):
            self._learn_ids(
                [
                    [one for one in found if one.get("group_instance_id") == instance_id]
                    for found in members
                ]
            )
        ours, theirs = self.txn.labelled(ours), self.kafka.labelled(theirs)
        for choice in ("leader", "protocol_name"):
            one, other = ours.get(choice), theirs.get(choice)
            if one and other and one != other and ours["error_code"] == theirs["error_code"]:
                raise DifferentChoiceError(choice)
        self._note(f"client {who} is answered", ours, theirs)
        client = self.clients[who]
        if client.member and ours.get("error_code") == "group_max_size_reached":
            raise DifferentChoiceError("Kafka lets the others wait for the member it removed")
        if ours.get("member_id"):
            client.member = ours["member_id"]
        if "generation_id" in ours and ours["error_code"] == "none":
            client.generation = ours["generation_id"]
            client.protocol = ours["protocol_name"]
            client.is_leader = ours["leader"] == client.member and not ours.get("skip_assignment")
            client.members = [one["member_id"] for one in ours["members"]]

    def _learn_ids(self, holders: list[list[dict[str, Any]]]) -> None:
        """Give one label to the ids of both brokers that have none, if there is one on each."""
        fresh = [
            [id_ for one in found if (id_ := one.get("member_id")) and not half.knows(id_)]
            for half, found in zip(self._halves, holders, strict=True)
        ]
        if all(len(ids) > 1 for ids in fresh):
            raise DifferentChoiceError("nobody knows which member is which")
        if all(fresh):
            self._count += 1
            for half, (one,) in zip(self._halves, fresh, strict=True):
                half.bind(f"<member {self._count}>", one)

    def _note(self, said: str, ours: Any, theirs: Any) -> None:
        if ours == theirs:
            self.history.append(f"{said}\n      both: {ours}")
            return
        self.history.append(f"{said}\n      txn: {ours}\n      Kafka: {theirs}")
        raise DifferenceError("\n".join(self.history))


@contextmanager
def rounds_beside(
    directory: Path, jars: JarSet, settings: Mapping[str, str], *topics: str
) -> Iterator[Rounds]:
    """Rounds on a broker of txn and one of Apache Kafka, both with these settings and topics."""
    with (
        KafkaNode(directory, settings, jars=jars) as node,
        txn.Broker(properties=settings) as broker,
    ):
        for servers in (broker.bootstrap_servers, node.bootstrap_servers):
            for topic in topics:
                create_topic(servers, topic)
        halves = Half(broker.bootstrap_servers), Half(node.bootstrap_servers)
        for half in halves:
            half.wake()
        yield Rounds(*halves)
        for half in halves:
            half.close()
