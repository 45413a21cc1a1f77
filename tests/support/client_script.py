"""`txn.Producer` over a script of librdkafka's answers, and a consumer that remembers its seeks."""

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from txn.client.engine import ProducerEngine
from txn.client.producer import Producer
from txn.client.transaction import Transaction


def fatal(code: int) -> KafkaError:
    return KafkaError(code, "reason", fatal=True)


def retriable(code: int) -> KafkaError:
    return KafkaError(code, "reason", retriable=True)


def requires_abort(code: int) -> KafkaError:
    return KafkaError(code, "reason", txn_requires_abort=True)


TIMED_OUT = retriable(KafkaError._TIMED_OUT)
NO_SUCH_STATE = KafkaError(KafkaError._STATE, "Operation not valid in state Ready")


class ClientScript:
    """librdkafka's producer, playing a script: per call the answers to give, in order.

    An answer is None for success, a value to return, something to raise, or an event to wait
    for first. A call without answers left succeeds.
    """

    append: None = None

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.calls: list[str] = []
        self.headers: list[Any] = []
        """Headers of each record produced."""
        self.waiting: list[int] = []
        """Number of records on their way at each question; 0 at the end."""

    def __len__(self) -> int:
        return self.waiting.pop(0) if self.waiting else 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: object, **named: object) -> Any:
            if name not in ("poll", "flush", "purge"):
                self.calls.append(name)
            if name == "produce":
                self.headers.append(named["headers"])
            waiting = self.answers.get(name)
            answer = waiting.pop(0) if waiting else (0 if name in ("flush", "poll") else None)
            if isinstance(answer, KafkaError):
                raise KafkaException(answer)
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, threading.Event):
                answer.wait()
                return None
            return answer

        return call


class ScriptedProducer(Producer):
    """A `Producer` over a script."""

    def __init__(self, script: ClientScript) -> None:
        self.script = script
        super().__init__(bootstrap_servers="h:1", transactional_id="p", timeout=0)

    def _connect(self, settings: dict[str, object]) -> ProducerEngine:
        return self.script


class FakeConsumer:
    """A consumer that stands at an offset, and remembers where it was sought to."""

    def __init__(self, committed: int = 2) -> None:
        self.place = TopicPartition("in", 0, 7)
        self.committed_offset = committed
        self.sought: list[int] = []
        self.answers: list[Any] = []

    def assignment(self) -> list[TopicPartition]:
        return [self.place]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [self.place]

    def consumer_group_metadata(self) -> bytes:
        return b"member"

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self.answers:
            raise KafkaException(self.answers.pop(0))
        return [TopicPartition("in", 0, self.committed_offset)]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append(place.offset)


def scripted(**answers: list[Any]) -> tuple[ScriptedProducer, ClientScript]:
    script = ClientScript(**answers)
    producer = ScriptedProducer(script)
    script.calls.clear()
    return producer, script


def block(
    producer: Producer, member: FakeConsumer | None = None, timeout: float = 0
) -> Transaction:
    return producer.transaction(member, timeout)  # type: ignore[arg-type]
