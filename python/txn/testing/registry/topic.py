"""The topic `_schemas` of a test's broker: read to its end before each request, written one by one.

It has one partition and is compacted, as the original makes it. The first write makes it.
"""

from typing import Final

from txn.errors import RejectedError
from txn.testing.client import KitClient
from txn.testing.registry.state import State

TOPIC: Final = "_schemas"


class SchemasTopic:
    """Keeps a state up to date.

    Args:
        kit: The client of the test's broker.
    """

    def __init__(self, kit: KitClient) -> None:
        self._kit = kit
        self._is_stale = False
        self._begin()

    def _begin(self) -> None:
        self._next_offset = 0
        self.state = State()

    def forget(self) -> None:
        """Read the topic from its beginning the next time; any thread may call it."""
        self._is_stale = True

    def catch_up(self) -> State:
        """Replay the records that are new, and return the state.

        Raises:
            RetriableError: the broker does not answer.
            RejectedError: the broker refuses.
        """
        while True:
            self._is_stale, was_stale = False, self._is_stale
            is_made = TOPIC in self._kit.topics()
            if was_stale or not is_made:
                self._begin()
            found = self._kit.read(TOPIC, starts={0: self._next_offset}) if is_made else []
            if self._is_stale:
                continue  # the broker was reset meanwhile
            for record in found:
                self.state.replay(record.key, record.value)
                self._next_offset = record.offset + 1
            return self.state

    def write(self, *pairs: tuple[bytes, bytes | None]) -> None:
        """Append records, and replay them. Raises the errors of `catch_up`."""
        if TOPIC not in self._kit.topics():
            try:
                self._kit.create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
            except RejectedError:
                if TOPIC not in self._kit.topics():
                    raise  # another registry has not made it at the same time
        self._kit.write(TOPIC, list(pairs), 0)
        self.catch_up()
