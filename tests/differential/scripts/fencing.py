"""Producers that may not: fenced, unknown, mistaken, timed out."""

from differential.batches import transactional
from differential.script import ABORT, COMMIT, ScriptProducer, Talk, versions

STRANGE_ID = 4_000_000_000_000


def _everything(talk: Talk, producer: ScriptProducer) -> None:
    """Every request that shows a producer id, in every version."""
    for version in range(4):
        talk.add_partitions(producer, (0,), version)
    for version in versions("AddOffsetsToTxn"):
        talk.add_offsets(producer, version)
    for version in versions("TxnOffsetCommit"):
        talk.commit_offsets(producer, {0: 1}, version)
    for version in versions("Produce"):
        talk.send(producer, 0, version=version)
    for version in versions("EndTxn"):
        talk.end(ScriptProducer(producer.transactional_id, *producer.identity), COMMIT, version)
        talk.end(ScriptProducer(producer.transactional_id, *producer.identity), ABORT, version)
    talk.describe(producer.transactional_id)


def a_fenced_producer_asks_for_everything_while_nothing_is_open(talk: Talk) -> None:
    old = talk.init(talk.pair.own("x"))
    talk.init(talk.pair.own("x"))
    _everything(talk, old)
    talk.look()


def a_fenced_producer_asks_for_everything_while_its_successor_works(talk: Talk) -> None:
    old = talk.init(talk.pair.own("x"))
    new = talk.init(talk.pair.own("x"))
    talk.send(new, 0)
    _everything(talk, old)
    talk.look()
    talk.end(new, COMMIT)
    _everything(talk, old)
    talk.look()


def an_epoch_from_the_future_asks_for_everything(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    _everything(talk, producer.at(producer.producer_epoch + 1))
    talk.send(producer, 0)
    _everything(talk, producer.at(producer.producer_epoch + 1))
    _everything(talk, producer.at(-1))
    talk.look()


def an_unknown_transactional_id_asks_for_everything(talk: Talk) -> None:
    _everything(talk, ScriptProducer(talk.pair.own("nobody"), STRANGE_ID, 0))
    _everything(talk, ScriptProducer("", STRANGE_ID, 0))
    talk.look()


def another_ones_producer_id_asks_for_everything(talk: Talk) -> None:
    mine = talk.init(talk.pair.own("x"))
    other = talk.init(talk.pair.own("y"))
    _everything(talk, ScriptProducer(mine.transactional_id, other.producer_id, 0))
    talk.send(mine, 0)
    _everything(talk, ScriptProducer(mine.transactional_id, other.producer_id, 0))
    talk.look()


def no_producer_id_asks_for_everything(talk: Talk) -> None:
    mine = talk.init(talk.pair.own("x"))
    for version in versions("EndTxn"):
        talk.end(ScriptProducer(mine.transactional_id, -1, -1), COMMIT, version)
        talk.add_partitions(ScriptProducer(mine.transactional_id, -1, -1), (0,), min(version, 3))
        talk.commit_offsets(ScriptProducer(mine.transactional_id, -1, -1), {0: 1}, version)


def a_transaction_that_takes_too_long_is_aborted(talk: Talk) -> None:
    for version in (11, 13):
        name = talk.pair.own(f"x{version}")
        producer = talk.init(name, timeout_ms=50)
        talk.add_partitions(producer, (0,))
        talk.until_aborted(name)
        talk.describe(name)
        before = ScriptProducer(name, *producer.identity)
        for end_version in versions("EndTxn"):
            for outcome in (COMMIT, ABORT):
                talk.end(ScriptProducer(name, *before.identity), outcome, end_version)
        talk.send(before, 0, version=version)
        talk.add_partitions(before, (1,))
        talk.commit_offsets(before, {0: 1})
        talk.init(name, shown=before.identity)
        talk.describe(name)
    talk.look()


def a_timed_out_producer_goes_on(talk: Talk) -> None:
    """KIP-360 with KIP-890: the coordinator bumped the epoch; the client shows the one before."""
    name = talk.pair.own("x")
    producer = talk.init(name, timeout_ms=50)
    talk.send(producer, 0)
    talk.until_aborted(name)
    talk.look()
    following = talk.init(name, shown=producer.identity)
    talk.describe(name)
    talk.send(following, 0)
    talk.end(following, COMMIT)
    talk.look()


def members_that_are_not_in_the_group(talk: Talk) -> None:
    """KIP-447: the group's generation fences offsets."""
    producer = talk.init(talk.pair.own("x"))
    for version in (3, 4, 5):
        talk.add_offsets(producer)
        for generation, member, instance in (
            (0, "ghost", None),
            (1, "", None),
            (-1, "ghost", None),
            (5, "ghost", "static"),
            (-1, "", "static"),
        ):
            talk.commit_offsets(
                producer,
                {0: 1},
                version,
                generation=generation,
                member=member,
                instance=instance,
            )
        talk.commit_offsets(producer, {0: 1}, version, group="")
        talk.commit_offsets(producer, {0: 1, 9: 1}, version)
        talk.commit_offsets(producer, {0: 1}, version, topic="nowhere")
        talk.commit_offsets(producer, {0: -1}, version)
        talk.fetch_offsets()
    talk.end(producer, COMMIT)
    talk.fetch_offsets()


def sequences_and_epochs_at_the_log(talk: Talk) -> None:
    """Requests that the partition itself refuses, once the producer is in its transaction."""
    producer = talk.init(talk.pair.own("x"))
    talk.send(producer, 0, values=(b"a", b"b"))
    for version in (11, 13):
        for sequence in (0, 1, 3, 5, 2, 2, 3, -1):
            talk.send(producer, sequence, version=version)
        talk.send(producer, 0, values=(b"a", b"b"), version=version)
        for epoch in (-1, producer.producer_epoch + 1, 32767):
            talk.send(producer.at(epoch), 0, version=version)
    talk.describe_producers()
    talk.end(producer, COMMIT)
    for sequence in (1, 5, 0, 1):
        talk.send(producer, sequence)
    talk.look()


def epochs_are_used_up(talk: Talk) -> None:
    """Ends bump the epoch to its last value; then another producer id takes over."""
    # Each end by version 5 with nothing open costs one request and one epoch.
    producer = talk.init(talk.pair.own("x"))
    first = producer.identity
    for _ in range(40):
        talk.end(producer, ABORT)
    assert producer.producer_id == first[0]
    batch = transactional(producer.producer_id, producer.producer_epoch, 0)
    talk.produce({0: batch}, producer.transactional_id)
    talk.end(producer, COMMIT)
    talk.look()
