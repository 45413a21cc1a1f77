"""The clients of the black box are right programs: their mistakes would be blamed on the broker."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from harnesses.black_box.client import Copier
from harnesses.black_box.events import Notebook
from harnesses.black_box.topics import STAGES


def test_copier_whose_commit_became_an_abort_begins_anew_at_the_committed_offsets(
    tmp_path: Path,
) -> None:
    """It went on behind the records that it had not copied, and the broker was blamed."""
    refusal = KafkaError(KafkaError._INCONSISTENT, "failed delivery", False, False, True)
    copier = Copier("copier-1-0", "nowhere:9092", Notebook(tmp_path / "notes"), seed=7)
    copier.stage = STAGES[1]
    copier.over.set()  # so it commits
    for error, may_go_on in ((None, True), (refusal, False)):
        consumer, producer = cast(Consumer, _OneRecord()), cast(Producer, _Producer(error))
        assert copier._copy(consumer, producer, "copier-1-0#1.1") is may_go_on


class _OneRecord:
    """A consumer that has one record."""

    def consume(self, *_: object, **__: object) -> list[Any]:
        fields = {
            "error": None,
            "topic": STAGES[1].source,
            "partition": 0,
            "offset": 5,
            "key": b"k0",
            "value": b"plain-0#1:1",
        }
        return [SimpleNamespace(**{name: _giving(value) for name, value in fields.items()})]

    def consumer_group_metadata(self) -> None:
        return None


class _Producer:
    """A producer whose commits end with an error, if there is one."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error

    def commit_transaction(self, _: float) -> None:
        if self._error is not None:
            raise KafkaException(self._error)

    def __getattr__(self, _: str) -> Any:
        return _giving(None)


def _giving(value: object) -> Any:
    return lambda *_, **__: value
