"""The consume-transform-produce loop, written: `Processor`, its dead letters and their redrive.

    processor.py   the public class: options, signals, threads, metrics
    worker.py      one consumer and one producer: a batch, its results, their transaction
    intake.py      the consumer's side: records ahead, pauses, due times, rebalances
    handling.py    runs the program's function on a thread of its own, with its attempts
    records.py     what the function gets and returns
    letters.py     the headers of dead letters and of delayed retries
    redrive.py     lists dead letters, and produces them to their topics again

It uses `txn.Producer` and `txn.Consumer` by their public methods alone.
"""

from txn.processor.metrics import Metrics
from txn.processor.processor import Processor
from txn.processor.records import Output, Record

__all__ = ["Metrics", "Output", "Processor", "Record"]
