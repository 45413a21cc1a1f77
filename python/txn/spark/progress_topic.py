"""The topic of progress records: its settings, and the newest record of a query."""

from typing import Final

from txn.spark.columns import keys_and_values
from txn.spark.kafka import TransactionalClient
from txn.spark.progress import Progress

SCAN_RECORDS: Final = 512


SCAN_GROWTH: Final = 8


PROGRESS_TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}


def read_progress(
    client: TransactionalClient, topic: str, txn_id: str, end: int
) -> Progress | None:
    """The newest record of a `txn.id` below `end`, read backwards in growing steps.

    Cost: one Fetch for a query that is the last to have written; the whole topic, which is
    compacted, for one that is new.
    """
    key = txn_id.encode()
    lowest = client.list_offsets(topic, [0], -2)[0]
    step = SCAN_RECORDS
    while end > lowest:
        start = max(lowest, end - step)
        chunks = [
            value
            for chunk in client.fetch(topic, 0, start, end)
            for name, value in keys_and_values(chunk)
            if name == key
        ]
        if chunks:
            return Progress.from_json(chunks[-1]) if chunks[-1] is not None else None
        end, step = start, step * SCAN_GROWTH
    return None
