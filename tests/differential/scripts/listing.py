"""DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers. KIP-664."""

from differential.batches import idempotent
from differential.script import ABORT, COMMIT, ScriptProducer, Talk, versions

STRANGE_ID = 4_000_000_000_000
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence", "Unknown", "nonsense", "empty", ""),
)


def every_state_is_described_and_listed(talk: Talk) -> None:
    empty, ongoing, committed, aborted = (
        talk.init(talk.pair.own(name)) for name in ("empty", "ongoing", "committed", "aborted")
    )
    everybody = (empty, ongoing, committed, aborted)
    talk.send(ongoing, 0)
    talk.commit_offsets(ongoing, {0: 1})
    talk.send(committed, 0)
    talk.end(committed, COMMIT)
    talk.send(aborted, 0)
    talk.end(aborted, ABORT)
    talk.describe(*(producer.transactional_id for producer in everybody))
    ids = [producer.producer_id for producer in everybody]
    for version in versions("ListTransactions"):
        talk.list_transactions(ids, version)
        talk.list_transactions([STRANGE_ID], version)
        for state in STATES:
            talk.list_transactions(ids, version, states=(state,))
        talk.list_transactions(ids, version, states=("Ongoing", "Empty", "nonsense"))
        for duration in (0, 1, 3_600_000, -1, -5):
            talk.list_transactions(ids, version, longer_than_ms=duration)
    for pattern in (
        *("", ".*", "ongoing", "ongoing.*", "(empty|aborted)-.*", "^ongoing.*$"),
        *("[", "(?=a)", "(a)\\1", "*", "a{2000}", "\\", "(?i)EMPTY.*", "\\pN+.*"),
    ):
        talk.list_transactions(ids, pattern=pattern)


def unknown_ids_are_described(talk: Talk) -> None:
    talk.describe(talk.pair.own("nobody"))
    talk.describe("")
    talk.describe()
    talk.describe(talk.pair.own("nobody"), talk.pair.own("nobody"))


def producers_are_described(talk: Talk) -> None:
    talk.describe_producers()
    talk.describe_producers((0, 9, -1))
    talk.describe_producers({"nowhere": [0], "": [0], "a/b": [0]})
    talk.describe_producers({})
    producer = talk.init(talk.pair.own("x"))
    talk.add_partitions(producer, (1,))
    talk.send(producer, 0, version=11, partition=1)
    talk.describe_producers()
    talk.end(producer, COMMIT, 3)
    talk.describe_producers()
    plain = talk.init(None)
    talk.produce({0: idempotent(plain.producer_id, 0, 0, values=(b"a", b"b"))})
    talk.describe_producers()
    talk.send(producer, 1, version=11, partition=1)
    talk.end(producer, ABORT)
    talk.describe_producers()


def an_operator_ends_a_transaction(talk: Talk) -> None:
    """WriteTxnMarkers as `kafka-transactions abort` sends it, and the requests after it."""
    for version in versions("WriteTxnMarkers"):
        producer = talk.init(talk.pair.own(f"x{version}"))
        talk.send(producer, 0)
        talk.write_markers(producer.at(7), ABORT, version=version)
        talk.look()
        talk.write_markers(producer, ABORT, version=version, coordinator_epoch=-1)
        talk.look()
        talk.send(producer, 1)
        talk.write_markers(producer, ABORT, version=version)
        talk.look()


def markers_that_nobody_should_send(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    for version in versions("WriteTxnMarkers"):
        for transaction_version in (0, 1, 2, 3):
            talk.write_markers(
                producer, COMMIT, version=version, transaction_version=transaction_version
            )
        talk.write_markers(producer, COMMIT, {"nowhere": [0], talk.topic: [9]}, version)
        talk.write_markers(ScriptProducer("", STRANGE_ID, 0), COMMIT, version=version)
        talk.write_markers(ScriptProducer("", -1, -1), COMMIT, version=version)
        talk.write_markers(producer, ABORT, {}, version)
        talk.write_markers(producer.at(-1), ABORT, version=version)
        talk.pair.ask("WriteTxnMarkers", version, markers=[])
    talk.look()


def a_marker_under_a_later_epoch_fences_the_log(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    talk.send(producer, 0)
    talk.write_markers(producer.at(producer.producer_epoch + 1), ABORT, coordinator_epoch=5)
    talk.look()
    talk.send(producer, 1)
    talk.write_markers(producer.at(producer.producer_epoch + 1), ABORT, coordinator_epoch=1)
    talk.look()
