"""A transaction that hangs, made by hand: txn lets none come about."""

from pathlib import Path

import txn
from txn import _core
from txn.clock import now_ms
from txn.identifiers import ProducerIdAndEpoch
from txn.inspect.segments import SegmentBatch, walk
from txn.server.lifecycle.broker import service_of


def let_hang(
    broker: txn.Broker, topic: str, producer_id: int, value: bytes, *, age_ms: int = 0
) -> int:
    """Append a transactional batch to partition 0 of a running broker, past its coordinator.

    Returns its offset. See `let_in_late` for the arguments.
    """
    store = service_of(broker).node.replicas.get(topic, 0)
    assert store is not None
    producer = ProducerIdAndEpoch(producer_id, 0)
    return store.append([(None, value)], timestamp_ms=now_ms() - age_ms, producer=producer)


def let_in_late(data: Path, topic: str, producer_id: int, value: bytes, *, age_ms: int = 0) -> int:
    """Append a transactional batch to partition 0 of a stopped broker, past every coordinator.

    As a batch was stored that came in after its transaction had ended, before brokers asked the
    coordinator (KIP-890). Returns its offset; the directory looks like after a crash.

    Args:
        data: Where the partition has one segment, with a batch in it.
        topic: Whose partition 0.
        producer_id: Of which nothing is known there.
        value: Of the one record.
        age_ms: How much older than the batch before it.
    """
    log = data / f"{topic}-0" / f"{0:020}.log"
    *_, last = walk(log)
    assert isinstance(last, SegmentBatch)
    at_ms = last.max_timestamp_ms - age_ms
    batch = _core.encode_batch([(None, value)], at_ms, producer_id, 0, 0, is_transactional=True)
    offset = last.last_offset + 1
    with log.open("ab") as file:
        file.write(offset.to_bytes(8, "big") + batch[8:])
    (data / ".kafka_cleanshutdown").unlink()
    return offset
