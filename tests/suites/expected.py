"""The tests of others' suites that do not pass, each with its reason, by target and suite."""

from typing import Final

TURNS: Final = "the test expects that two readers get their records in turn"
COMPACTED: Final = "the test makes segments of 200 bytes, and Kafka 4 refuses less than 1 MiB"
LEFT: Final = "a test within it failed"
NO_REASSIGNMENT: Final = "txn does not answer this request yet"
CREATED_AGAIN: Final = "the test asks for a deleted topic, and txn makes it at once by itself"
ONE_NODE: Final = "the node answers REQUEST_TIMED_OUT: a single one has nobody to elect"
TOO_EARLY: Final = "the test reads its own change at once, and Kafka may show it later"

EXPECTED: Final[dict[str, dict[str, dict[str, str]]]] = {
    "txn": {
        "kafka-go": {
            "kafka-go.TestClientAlterPartitionReassignments": NO_REASSIGNMENT,
            "kafka-go.TestClientAlterPartitionReassignmentsMultiTopics": NO_REASSIGNMENT,
            "kafka-go.TestClientElectLeaders": NO_REASSIGNMENT,
            "kafka-go.TestClientListPartitionReassignments": NO_REASSIGNMENT,
            "kafka-go.TestConn": LEFT,
            "kafka-go.TestConn/test_delete_topics": CREATED_AGAIN,
            "kafka-go.TestConn/test_delete_topics_with_an_invalid_topic": CREATED_AGAIN,
            "kafka-go.TestReaderConsumerGroup": LEFT,
            "kafka-go.TestReaderConsumerGroup/consumer_group_rebalance": TURNS,
            "kafka-go.TestReaderReadCompactedMessage": COMPACTED,
        },
    },
    "kafka": {
        "kafka-go": {
            "kafka-go.TestClientDescribeACLs": TOO_EARLY,
            "kafka-go.TestClientElectLeaders": ONE_NODE,
            "kafka-go.TestDescribeUserScramCredentials": TOO_EARLY,
            "kafka-go.TestReaderConsumerGroup": LEFT,
            "kafka-go.TestReaderConsumerGroup/consumer_group_rebalance": TURNS,
            "kafka-go.TestReaderReadCompactedMessage": COMPACTED,
        },
    },
}
