"""The topics, records, groups and transactions of a test's broker."""

import itertools
from collections.abc import Iterable

from txn.errors import RejectedError
from txn.hints import did_you_mean
from txn.testing.client import DEAD, Record
from txn.testing.open_broker import WAIT_S, OpenBroker, wait_until


class BrokerContents(OpenBroker):
    """Writes and reads for the arrangement and the assertions of a test."""

    _topic_numbers: "itertools.count[int]"

    def create_topic(self, name: str | None = None, partitions: int = 1, **config: object) -> str:
        """Create a topic and return its name; without one it gets a new one.

        Args:
            name: The name.
            partitions: Number of partitions.
            config: Topic settings with underscores for dots, `cleanup_policy="compact"`.

        Raises:
            RejectedError: it exists, or a setting does not fit.
        """
        kit = self._client()
        if name is None:
            # A branch has topics that another broker numbered; tests give such names themselves.
            known = kit.topics()
            names = (f"topic-{number}" for number in self._topic_numbers)
            name = next(each for each in names if each not in known)
        settings = {key.replace("_", "."): _text(value) for key, value in config.items()}
        kit.create_topic(name, partitions, settings)
        return name

    def topics(self) -> list[str]:
        """The names of the topics, without internal ones."""
        return self._client().topics()

    def produce(
        self,
        topic: str,
        *records: "bytes | str | tuple[bytes | str | None, bytes | str | None]",
        partition: int | None = None,
        aborted: bool = False,
    ) -> None:
        """Append records, each a value or a (key, value), without a transaction.

        Args:
            topic: The topic.
            records: Values, or pairs of key and value; text is encoded as UTF-8.
            partition: The partition; None: by the hash of the key, as Java's producer does.
            aborted: Append them in a transaction, and abort it: read_committed readers never get
                them.

        Raises:
            RejectedError: there is no such topic or partition, or the broker refuses.
        """
        self._client().write(
            topic, [_key_and_value(each) for each in records], partition, aborted=aborted
        )

    def records(self, topic: str, *, isolation: str = "read_committed") -> list[Record]:
        """The records of a topic that a reader gets now, by partition, then by offset.

        Raises:
            RejectedError: there is no such topic, or no such isolation.
        """
        return self._client().read(topic, isolation=isolation)

    def wait_for_records(
        self, topic: str, count: int, *, isolation: str = "read_committed", timeout: float = WAIT_S
    ) -> list[Record]:
        """Wait until a topic has at least `count` records for a reader, and return them.

        Raises:
            WaitError: they did not come within `timeout` seconds; the message has their number.
            RejectedError: there is no such topic.
        """
        found: list[Record] = []

        def is_there() -> bool:
            found[:] = self.records(topic, isolation=isolation)
            return len(found) >= count

        wait_until(
            is_there,
            timeout,
            lambda: (
                f"topic {topic!r} has {len(found)} of {count} records for {isolation} readers "
                f"after {timeout:g} s{self._describe_open_transactions()}"
            ),
        )
        return found

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group, by (topic, partition). Empty for an unknown group."""
        return self._client().committed(group)

    def groups(self) -> list[str]:
        """The ids of the consumer groups."""
        return self._client().groups()

    def members(self, group: str) -> list[str]:
        """The ids of a group's members; empty for an unknown group."""
        return list(self._client().group(group).members)

    def wait_until_consumed(
        self, group: str, topics: Iterable[str] | str | None = None, *, timeout: float = WAIT_S
    ) -> None:
        """Wait until a group has committed offsets behind all records for read_committed readers.

        Markers of transactions do not count: a group that has read every record is done.

        Args:
            group: The group.
            topics: Its topics. None means all topics for which it has offsets, or to which its
                members subscribe.
            timeout: Limit in seconds.

        Raises:
            WaitError: records are left; the message names partitions, offsets and the lag.
            RejectedError: one of `topics` is not there.
        """
        self._client()
        named = [topics] if isinstance(topics, str) else None if topics is None else list(topics)
        left: list[str] = []

        def is_consumed() -> bool:
            found = self.unconsumed(group, named)
            left[:] = ["it is not known"] if found is None else found
            return not left

        wait_until(
            is_consumed,
            timeout,
            lambda: (
                f"group {group!r} has not consumed everything after {timeout:g} s: "
                f"{'; '.join(left)}{did_you_mean(group, self._kit.groups())}"
            ),
        )

    def unconsumed(self, group: str, topics: Iterable[str] | None = None) -> list[str] | None:
        """The partitions with committed records that a group has not committed offsets behind.

        Returns:
            One text per partition with its lag; None where no member and no offset is known.
        """
        kit = self._client()
        committed = kit.committed(group)
        if topics is None:
            described = kit.group(group)
            known = {topic for topic, _ in committed} | described.topics
            if not known and described.state == DEAD:
                return None
            topics = sorted(known & set(kit.topics()))
            if not topics:
                return ["it has neither offsets nor subscribed topics"]
        left = []
        for topic in topics:
            starts = {  # the log's start may lie behind the group's offset: records are deleted
                number: max(start, committed.get((topic, number), 0))
                for number, start in enumerate(kit.starts(topic))
            }
            ends = kit.ends(topic, isolation="read_uncommitted")
            beyond = {n: end for n, end in enumerate(ends) if starts[n] > end}
            left += [
                f"{topic}-{number} ends at offset {end}, below offset {starts.pop(number)}"
                for number, end in beyond.items()
            ]
            lag: dict[int, int] = {}
            for record in kit.read(topic, starts=starts):
                lag[record.partition] = lag.get(record.partition, 0) + 1
            left += [
                f"{topic}-{number} lags by {behind} from offset {starts[number]}"
                for number, behind in lag.items()
            ]
        return left

    def transactions(self) -> dict[str, str]:
        """The state of each transactional id, `Ongoing` or `CompleteCommit`."""
        return self._client().transactions()

    def _describe_open_transactions(self) -> str:
        ongoing = [id for id, state in self._kit.transactions().items() if state == "Ongoing"]
        if not ongoing:
            return ""
        return f". Open transactions: {', '.join(ongoing)}; clock.advance() expires them"


def _key_and_value(record: object) -> tuple[bytes | None, bytes | None]:
    pair = record if isinstance(record, tuple) else (None, record)
    if len(pair) != 2 or not all(isinstance(each, bytes | str | None) for each in pair):
        raise RejectedError(f"a record is bytes, text, or a tuple of key and value, not {record!r}")
    key, value = (each.encode() if isinstance(each, str) else each for each in pair)
    return key, value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
