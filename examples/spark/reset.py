"""Reset in place: the results of a program are given up, and it computes them anew.

    python examples/spark/reset.py --checkpoint checkpoints/large-orders --output large-orders

Stop the program first, by Ctrl-C or SIGTERM. This deletes the records of its outputs, then its
checkpoint. Start the program again, with the same arguments, and by a new rule if you like. It
begins at the first record of its input that is kept, and its sink has a new id by itself.

The topics stay, with their settings, and offsets go on. A reader that goes on with its offsets
gets the new results behind the old ones. Until the program has caught up it finds fewer results
than before; `reprocess.py` has a way without that gap, for another topic.

Exactly once: each record of the input has its results once in the topic. After a crash of the reset
run it again before you start the program.

A sink with an id of its own, as in `several_sinks.py`, also needs a new id. Of `database_totals.py`
empty the table, and remove its row of `spark_progress` in the same transaction.
"""

import argparse
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import javaproperties
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

WAIT_S = 60


def main() -> None:
    """Reset the program that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT[,…]")
    add("--command-config", type=Path, metavar="FILE", help="settings in librdkafka's names")
    add("--checkpoint", required=True, type=Path, metavar="DIRECTORY")
    add("--output", required=True, action="append", metavar="TOPIC", help="may be given again")
    given = parser.parse_args()
    secured: Mapping[str, str] = {}
    if given.command_config is not None:
        secured = javaproperties.loads(given.command_config.read_text())
    reset(AdminClient({"bootstrap.servers": given.bootstrap_servers, **secured}), given)


def reset(admin: AdminClient, given: argparse.Namespace) -> None:
    """Delete the records of the outputs, then the checkpoint."""
    ends = _ends(admin, given.output)
    for deleted in admin.delete_records(ends, request_timeout=WAIT_S).values():
        deleted.result()
    if given.checkpoint.exists():
        shutil.rmtree(given.checkpoint)


def _ends(admin: AdminClient, topics: Sequence[str]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition, OFFSET_END)
        for topic in topics
        for partition in admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    ]


if __name__ == "__main__":
    main()
