"""All that a broker shows its clients, as plain data, so that two brokers can be compared.

Timestamps of markers are left out, since a broker that ends transactions writes markers of its own
time. Everything else of a batch is there: its records by their checksum.
"""

import struct
import time
import zlib
from collections.abc import Callable
from typing import Any, Final, TypedDict

from support.clients import WAIT_S
from support.wire_client import RawConnection
from txn import _core
from txn.wire.error_codes import ErrorCode
from txn.wire.transaction_descriptions import decode_descriptions

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH = 0, 1, 2, 3, 9
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS = 23, 61
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CONTROL: Final = 0x20
LATEST, EARLIEST = -1, -2
UNCOMMITTED, COMMITTED = 0, 1
FETCH_BYTES = 8 << 20
PREPARED: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
SETTLED_S = 2.0
"""Time that decided transactions may take to complete after a start."""


class ShownPartition(TypedDict):
    """One partition. `error` is the name of the first one met, or empty."""

    error: str
    fault: int
    """The offset where a fetch was refused, or -1."""
    start: int
    end: int
    stable: int
    batches: list[list[int]]
    """Base and last offset, leader epoch, attributes, producer id, epoch and sequence, count of
    records, time of the first, checksum of the records."""
    aborted: list[list[int]]
    epochs: list[int]
    """Where each leader epoch ends."""
    producers: list[list[int]]
    """Producer id, epoch, last sequence, first offset of the open transaction."""


class Shown(TypedDict):
    """A broker."""

    partitions: dict[str, ShownPartition]
    transactions: dict[str, list[Any]]
    """State, producer id and epoch, partitions; or one error."""
    offsets: dict[str, Any]


class ShownReader(RawConnection):
    """Asks for everything."""

    def everything(self, groups: tuple[str, ...], ids: tuple[str, ...]) -> Shown:
        self.await_settled()
        partitions = {
            f"{topic}-{index}": self.partition(topic, index) for topic, index in self.places()
        }
        return {
            "partitions": partitions,
            "transactions": {name: self.transaction(name) for name in ids},
            "offsets": {group: self.offsets(group) for group in groups},
        }

    def places(self) -> list[tuple[str, int]]:
        answer = self.ask(
            METADATA,
            9,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return sorted(
            (topic.name, partition.partition_index)
            for topic in answer.topics
            for partition in topic.partitions
        )

    def partition(self, topic: str, index: int) -> ShownPartition:
        errors: list[str] = []
        start, end, stable = (
            self._offset(topic, index, which, isolation, errors)
            for which, isolation in (
                (EARLIEST, UNCOMMITTED),
                (LATEST, UNCOMMITTED),
                (LATEST, COMMITTED),
            )
        )
        batches, fault = ([], -1) if errors else self._batches(topic, index, start, end, errors)
        newest = max((batch[2] for batch in batches), default=-1)
        return {
            "error": errors[0] if errors else "",
            "fault": fault,
            "start": start,
            "end": end,
            "stable": stable,
            "batches": batches,
            "aborted": [] if errors else self._aborted(topic, index, start, stable, errors),
            "epochs": [self._epoch_end(topic, index, each) for each in range(newest + 1)],
            "producers": self._producers(topic, index),
        }

    def transaction(self, transactional_id: str) -> list[Any]:
        self.send(DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id])
        body = self.receive_body(DESCRIBE_TRANSACTIONS, 0)
        [found], _ = decode_descriptions(body)
        if int(found.code):
            return [_name(found.code)]
        places = sorted(f"{topic}-{index}" for topic, index in found.partitions)
        return [found.label, found.producer_id, found.producer_epoch, places]

    def offsets(self, group: str) -> dict[str, Any]:
        answer = self.ask(OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=False)
        if int(answer.error_code):
            return {"error": _name(answer.error_code)}
        return {
            f"{topic.name}-{each.partition_index}": each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
        }

    def append(self, topic: str) -> tuple[str, int, int]:
        """Write a record to partition 0; return the error, its offset and leader epoch."""
        batch = _core.encode_batch([(b"next", b"next")], int(time.time() * 1000), -1, -1, -1, False)
        partition = {"index": 0, "records": batch}
        answer = self.ask(
            PRODUCE,
            9,
            transactional_id=None,
            acks=-1,
            timeout=1_000,
            topic_data=[{"name": topic, "partition_data": [partition]}],
        )
        [written] = answer.responses[0].partition_responses
        if int(written.error_code):
            return _name(written.error_code), -1, -1
        errors: list[str] = []
        offset = written.base_offset
        batches, _ = self._batches(topic, 0, offset, offset + 1, errors)
        return (errors[0], offset, -1) if errors else ("", offset, batches[0][2])

    def end_of(self, topic: str, isolation: int) -> int:
        """Where readers of an isolation level end in partition 0."""
        errors: list[str] = []
        end = self._offset(topic, 0, LATEST, isolation, errors)
        assert not errors, errors
        return end

    def await_settled(self) -> bool:
        """Wait until decided transactions are complete; return whether all are."""
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            answer = self.ask(LIST_TRANSACTIONS, 1, state_filters=PREPARED, producer_id_filters=[])
            if int(answer.error_code) or not answer.transaction_states:
                return not int(answer.error_code)
            time.sleep(0.01)
        return False

    def _offset(self, topic: str, index: int, which: int, isolation: int, errors: list[str]) -> int:
        partition = {"partition_index": index, "current_leader_epoch": -1, "timestamp": which}
        answer = self.ask(
            LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": topic, "partitions": [partition]}],
        )
        [found] = answer.topics[0].partitions
        if int(found.error_code):
            errors.append(_name(found.error_code))
        offset: int = found.offset
        return offset

    def fetch(self, topic: str, index: int, offset: int, isolation: int) -> Any:
        partition = {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": FETCH_BYTES,
        }
        answer = self.ask(
            FETCH,
            11,
            max_wait=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation,
            topics=[{"topic": topic, "partitions": [partition]}],
            forgotten_topics_data=[],
        )
        return answer.responses[0].partitions[0]

    def _batches(
        self, topic: str, index: int, start: int, end: int, errors: list[str]
    ) -> tuple[list[list[int]], int]:
        """The batches of a range, and the offset where they are refused, or -1."""
        found: list[list[int]] = []
        offset = start
        while offset < end:
            answer = self.fetch(topic, index, offset, UNCOMMITTED)
            if int(answer.error_code):
                errors.append(_name(answer.error_code))
                return found, offset
            data = bytes(answer.records or b"")
            try:
                _core.decode_batches(data)
            except _core.CorruptLogError as error:
                errors.append(f"DAMAGE IS SERVED: {error}")
                return found, offset
            found += _headers(data)
            if not found or found[-1][1] < offset:
                break  # nothing more
            offset = found[-1][1] + 1
        return found, -1

    def _aborted(
        self, topic: str, index: int, start: int, stable: int, errors: list[str]
    ) -> list[list[int]]:
        found: list[list[int]] = []
        offset = start
        while offset < stable:
            answer = self.fetch(topic, index, offset, COMMITTED)
            if int(answer.error_code):
                errors.append(_name(answer.error_code))
                break
            found += [[each.producer_id, each.first_offset] for each in answer.aborted_transactions]
            headers = _headers(bytes(answer.records or b""))
            if not headers:
                break
            offset = headers[-1][1] + 1
        return sorted(found)

    def _epoch_end(self, topic: str, index: int, epoch: int) -> int:
        partition = {"partition": index, "current_leader_epoch": -1, "leader_epoch": epoch}
        answer = self.ask(
            OFFSET_FOR_LEADER_EPOCH, 4, topics=[{"topic": topic, "partitions": [partition]}]
        )
        end: int = answer.topics[0].partitions[0].end_offset
        return end

    def _producers(self, topic: str, index: int) -> list[list[int]]:
        answer = self.ask(
            DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [index]}]
        )
        return sorted(
            [
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.current_txn_start_offset,
            ]
            for each in answer.topics[0].partitions[0].active_producers
        )


def _headers(data: bytes) -> list[list[int]]:
    found = []
    position = 0
    while position + HEADER.size <= len(data):
        base, length, epoch, _, _, attributes, delta, first_ms, _, pid, pepoch, sequence, count = (
            HEADER.unpack_from(data, position)
        )
        end = position + 12 + length
        if end > len(data):
            break
        checksum = zlib.crc32(data[position + HEADER.size : end])
        time_ms = 0 if attributes & CONTROL else first_ms
        found.append(
            [base, base + delta, epoch, attributes, pid, pepoch, sequence, count, time_ms, checksum]
        )
        position = end
    return found


def _name(code: ErrorCode) -> str:
    return ErrorCode(code).name


def observe(
    servers: str, groups: tuple[str, ...], ids: tuple[str, ...], *, to: Callable[[str], None]
) -> Shown:
    """Ask a broker for everything; `to` is told each question."""
    to("connect")
    with ShownReader(servers) as observer:
        observer.socket.settimeout(WAIT_S)
        to("observe")
        return observer.everything(groups, ids)
