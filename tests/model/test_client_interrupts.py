"""A signal between any two steps of the client loses no record and doubles none.

Python may raise KeyboardInterrupt between any two bytecodes. So it may where a block has just
learned that its commit is done, or is about to rewind its consumer. Here it is raised at chosen
lines and returns of `txn.client` while a program copies a topic, against a cluster that is a few
lists. The program goes on as the errors tell it, and in the end the copy must equal the topic.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from txn.client.block_offsets import _ahead
from txn.client.engine import ProducerEngine
from txn.client.producer import Producer
from txn.errors import FencedError, InDoubtError, RejectedError, RetriableError

TOPIC = [b"0", b"1", b"2", b"3", b"4"]


class Signals:
    """Raises KeyboardInterrupt after so many lines of `txn.client`, then after so many more."""

    def __init__(self, gaps: list[int]) -> None:
        self._gaps = list(gaps)

    def arm(self) -> None:
        """Trace from here on; an interrupt ends tracing, so a survivor arms again."""
        if not self._gaps:
            return
        sys.settrace(self._trace)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if "txn/client/" in frame.f_code.co_filename:
                frame.f_trace = self._trace
            frame = frame.f_back

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """Raise nothing meanwhile."""
        sys.settrace(None)
        gaps, self._gaps = self._gaps, []
        yield
        self._gaps = gaps

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if "txn/client/" not in frame.f_code.co_filename or not self._gaps:
            return None
        if event == "call" and _is_in_finalizer(frame):
            return None  # Python prints an interrupt there, and goes on
        # A return is the place behind a call, where its caller holds nothing yet.
        if event in ("line", "return"):
            self._gaps[0] -= 1
            if self._gaps[0] == 0:
                del self._gaps[0]
                raise KeyboardInterrupt
        return self._trace


def _is_in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None and "txn/client/" in frame.f_code.co_filename:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class ModelCluster:
    """Committed state: the copy, and the group's offset."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.copy: list[bytes] = []
        self.offset = OFFSET_INVALID
        self.open_values: list[bytes] = []
        self.open_offset: int | None = None
        self.is_open = False

    def end(self, *, commit: bool) -> None:
        if commit:
            self.copy += self.open_values
            self.offset = self.offset if self.open_offset is None else self.open_offset
        self.open_values, self.open_offset, self.is_open = [], None, False


class Librdkafka:
    """A producer that answers at once; begun, it must be ended before it begins again."""

    append: None = None

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster

    def __len__(self) -> int:
        return 0

    def init_transactions(self, timeout: float) -> None:
        self._cluster.end(commit=False)

    def begin_transaction(self) -> None:
        self._require(not self._cluster.is_open)
        self._cluster.is_open = True

    def produce(self, topic: str, value: bytes, **others: object) -> None:
        self._require(self._cluster.is_open)
        self._cluster.open_values.append(value)

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], metadata: object, timeout: float
    ) -> None:
        self._require(self._cluster.is_open)
        self._cluster.open_offset = offsets[0].offset

    def commit_transaction(self, timeout: float) -> None:
        self._end(commit=True)

    def abort_transaction(self, timeout: float) -> None:
        self._end(commit=False)

    def flush(self, timeout: float) -> int:
        return 0

    def poll(self, timeout: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def _end(self, *, commit: bool) -> None:
        self._cluster.signals.arm()
        self._require(self._cluster.is_open)
        self._cluster.end(commit=commit)

    def _require(self, is_legal: bool) -> None:
        if not is_legal:
            raise KafkaException(KafkaError(KafkaError._STATE, "Operation not valid in state"))


class ModelConsumer:
    """A plain consumer of the topic's one partition."""

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster
        self._next = 0
        self._position = OFFSET_INVALID

    def read(self) -> bytes | None:
        if self._next == len(TOPIC):
            return None
        self._next += 1
        self._position = self._next
        return TOPIC[self._next - 1]

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("in", 0)]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("in", 0, self._position)]

    def consumer_group_metadata(self) -> bytes:
        return b"member"

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self._cluster.signals.arm()
        return [TopicPartition("in", 0, self._cluster.offset)]

    def seek(self, place: TopicPartition) -> None:
        self._next = max(0, place.offset)
        self._position = OFFSET_INVALID


class ModelProducer(Producer):
    """A `Producer` over the model."""

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster
        super().__init__(bootstrap_servers="h:1", transactional_id="p")

    def _connect(self, settings: dict[str, object]) -> ProducerEngine:
        return Librdkafka(self._cluster)  # type: ignore[return-value]


def copy_topic(cluster: ModelCluster, batch: Callable[[], int]) -> None:
    """The program: copy until everything is committed, going on after every exception."""
    producer, reader = ModelProducer(cluster), ModelConsumer(cluster)
    while cluster.offset < len(TOPIC):
        try:
            cluster.signals.arm()
            with producer.transaction(reader, timeout=5) as t:  # type: ignore[arg-type]
                for _ in range(batch()):
                    value = reader.read()
                    if value is not None:
                        t.produce("out", value)
        except (KeyboardInterrupt, RetriableError):
            pass
        except (FencedError, InDoubtError, RejectedError):
            # Rejected, if its end was cut short: `t` still holds the last block.
            with cluster.signals.held_off():  # opening a producer is the program's own affair
                producer.close()
                producer = ModelProducer(cluster)


@given(gaps=st.lists(st.integers(1, 160), min_size=1, max_size=4), batch=st.integers(1, 3))
@settings(max_examples=500, deadline=None)
def test_the_copy_is_exact_wherever_signals_strike(gaps: list[int], batch: int) -> None:
    cluster = ModelCluster(Signals(gaps))
    before = sys.gettrace()
    try:
        copy_topic(cluster, lambda: batch)
    finally:
        sys.settrace(before)
        _ahead.clear()

    assert cluster.copy == TOPIC
