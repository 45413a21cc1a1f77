"""Topics that exist on both brokers and can be written to."""

from differential.names import Name
from differential.pair import API_KEYS, PARTITIONS, Pair
from differential.side import Side

USABLE = {"none"}


def wake(pair: Pair) -> None:
    """Have both coordinators' internal topics made and loaded, and producer id 0 given away.

    A broker's first producer id may be 0, which answers with an error show as well.
    """
    pair.until(lambda side: all(_coordinates(side, kind) for kind in (0, 1)))
    for side in (pair.txn, pair.kafka):
        side.ask(
            API_KEYS["InitProducerId"], 0, {"transactional_id": None, "transaction_timeout": 1}
        )


def _coordinates(side: Side, kind: int) -> bool:
    answer = side.ask(
        API_KEYS["FindCoordinator"], 4, {"key_type": kind, "coordinator_keys": ["any"]}
    )
    return bool(answer["coordinators"][0]["error_code"] == "none")


def make_topic(pair: Pair, name: str, number: int = 1, **settings: str) -> str:
    """Make a topic, name its id `<topic id number>`, and wait until it can be written."""
    # Records of any age stay: each broker looks for old ones at times of its own.
    settings = {"retention_ms": "-1", **settings}
    for side in (pair.txn, pair.kafka):
        answer = side.ask(
            API_KEYS["CreateTopics"],
            7,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": PARTITIONS,
                        "replication_factor": 1,
                        "assignments": [],
                        "configs": [
                            {"name": key.replace("_", "."), "value": value}
                            for key, value in settings.items()
                        ],
                    }
                ],
                "timeout": 10_000,
                "validate_only": False,
            },
        )
        topic = answer["topics"][0]
        assert topic["error_code"] == "none", topic
        side.names.bind(Name("topic id", number), topic["topic_id"])
    pair.until(lambda side: _leads(side, name))
    return name


def _leads(side: Side, name: str) -> bool:
    """True once a broker serves the topic: with Apache Kafka, a while after it was made."""
    answer = side.ask(
        API_KEYS["ListOffsets"],
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": index, "timestamp": -1} for index in range(PARTITIONS)
                    ],
                }
            ],
        },
    )
    return {p["error_code"] for p in answer["topics"][0]["partitions"]} == USABLE


def remove_topic(pair: Pair, name: str) -> None:
    """Delete a topic, and wait until nobody can write to it."""
    for side in (pair.txn, pair.kafka):
        answer = side.ask(API_KEYS["DeleteTopics"], 5, {"topic_names": [name], "timeout": 10_000})
        assert answer["responses"][0]["error_code"] == "none", answer
    pair.until(lambda side: not _leads(side, name))
