"""Begin and end of transactions, by both transaction versions and mixtures of them."""

from differential.batches import transactional
from differential.script import ABORT, COMMIT, ScriptProducer, Talk, versions

STRANGE_ID = 4_000_000_000_000


def the_old_way_in_every_version(talk: Talk) -> None:
    """TV1, as librdkafka does it: partitions and offsets are added first, the epoch stays."""
    producer = talk.init(talk.pair.own("x"), 4)
    for round_ in range(6):
        talk.add_partitions(producer, (0, 1), min(round_, 3))
        talk.send(producer, round_, version=3 + round_)  # the sequence goes on over the ends
        talk.describe(producer.transactional_id)
        talk.add_offsets(producer, min(round_, 4))
        talk.commit_offsets(producer, {0: round_}, min(round_, 4))
        talk.describe_producers()
        talk.fetch_offsets()
        talk.end(producer, round_ % 2 == 0, min(round_, 4))
        talk.describe(producer.transactional_id)
        talk.look()


def the_new_way(talk: Talk) -> None:
    """TV2, as Java and franz-go do it: the first batch joins, every end bumps the epoch."""
    producer = talk.init(talk.pair.own("x"))
    for outcome in (COMMIT, ABORT, COMMIT):
        for version in (12, 13):
            talk.send(producer, 0, version=version)
            talk.send(producer, 1, version=version)
            talk.send(producer, 0, partition=1, version=version)
            talk.commit_offsets(producer, {0: 7, 1: 8})
            talk.describe(producer.transactional_id)
            talk.look()
            talk.end(producer, outcome)
            talk.describe(producer.transactional_id)
            talk.look()


def produce_without_adding_the_partition(talk: Talk) -> None:
    """Versions below 12 do not join; one that was never added is refused."""
    for version in versions("Produce"):
        producer = talk.init(talk.pair.own(f"x{version}"))
        talk.send(producer, 0, version=version)
        talk.describe(producer.transactional_id)
        talk.add_partitions(producer, (1,))
        talk.send(producer, 0, version=version)
        talk.send(producer, 0, partition=1, version=version)
        talk.end(producer, ABORT, 4)
    talk.look()


def offsets_without_adding_the_group(talk: Talk) -> None:
    for version in versions("TxnOffsetCommit"):
        producer = talk.init(talk.pair.own(f"x{version}"))
        talk.commit_offsets(producer, {0: 1}, version)
        talk.describe(producer.transactional_id)
        talk.fetch_offsets()
        talk.end(producer, COMMIT, 4)
        talk.fetch_offsets()


def an_end_with_nothing_open(talk: Talk) -> None:
    for version in versions("EndTxn"):
        for outcome in (COMMIT, ABORT):
            producer = talk.init(talk.pair.own(f"x{version}{outcome}"))
            talk.end(producer, outcome, version)
            talk.describe(producer.transactional_id)
            talk.end(producer, outcome, version)
            talk.describe(producer.transactional_id)


def an_end_is_retried_after_every_end(talk: Talk) -> None:
    """Every first end by every second one, shown with the epoch before, at and after it."""
    for first in (4, 5):
        for outcome in (COMMIT, ABORT):
            for second in (1, 4, 5):
                for again in (COMMIT, ABORT):
                    for step in (-1, 0, 1, 2):
                        name = f"x{first}{outcome}{second}{again}{step}"
                        producer = talk.init(talk.pair.own(name))
                        talk.init(producer.transactional_id)
                        producer = talk.init(producer.transactional_id)
                        talk.add_partitions(producer, (0,))
                        epoch = producer.producer_epoch
                        talk.end(producer, outcome, first)
                        retry = ScriptProducer(
                            producer.transactional_id, producer.producer_id, epoch + step
                        )
                        talk.end(retry, again, second)
                        talk.describe(producer.transactional_id)


def versions_are_mixed_within_a_transaction(talk: Talk) -> None:
    for produce_version, end_version in ((11, 5), (13, 3), (13, 4), (11, 3)):
        producer = talk.init(talk.pair.own(f"x{produce_version}{end_version}"))
        for outcome in (COMMIT, ABORT):
            talk.add_partitions(producer, (0,))
            talk.send(producer, 0 if outcome or end_version == 5 else 2, version=produce_version)
            talk.send(producer, 1 if outcome or end_version == 5 else 3, version=13)
            talk.end(producer, outcome, end_version)
            talk.describe(producer.transactional_id)
    talk.look()


def a_stored_batch_is_sent_again_after_the_end(talk: Talk) -> None:
    for version, end_version in ((11, 3), (13, 5), (11, 5)):
        producer = talk.init(talk.pair.own(f"x{version}{end_version}"))
        before = producer.at(producer.producer_epoch)
        talk.add_partitions(producer, (0,))
        talk.send(producer, 0, version=version)
        talk.end(producer, COMMIT, end_version)
        talk.send(before, 0, version=version)
        talk.describe(producer.transactional_id)
        talk.look()


def a_sequence_is_used_again_after_an_abort(talk: Talk) -> None:
    """librdkafka's next step if an abort finds a batch unanswered; here it was stored."""
    producer = talk.init(talk.pair.own("x"))
    talk.add_partitions(producer, (0,))
    talk.send(producer, 0, version=11)
    talk.end(producer, ABORT, 3)
    talk.add_partitions(producer, (0,))
    talk.send(producer, 0, version=11)
    talk.end(producer, COMMIT, 3)
    talk.look()


def a_late_batch_after_the_end(talk: Talk) -> None:
    for version, end_version in ((11, 3), (13, 5), (13, 3), (11, 5)):
        producer = talk.init(talk.pair.own(f"x{version}{end_version}"))
        before = producer.at(producer.producer_epoch)
        talk.add_partitions(producer, (0,))
        talk.send(producer, 0, version=version)
        talk.end(producer, COMMIT, end_version)
        talk.send(before, 1, version=version)
        talk.describe(producer.transactional_id)
        talk.look()
        talk.end(before, ABORT, end_version)


def a_partition_that_does_not_exist_is_added(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    for version in range(4):
        talk.add_partitions(producer, {talk.topic: [0, 9], "nowhere": [0]}, version)
        talk.add_partitions(producer, {"nowhere": [0]}, version)
        talk.add_partitions(producer, {"__consumer_offsets": [0], talk.topic: [1]}, version)
        talk.add_partitions(producer, {"__transaction_state": [0]}, version)
        talk.add_partitions(producer, {}, version)
        talk.add_partitions(producer, {talk.topic: [1, 1]}, version)
        talk.describe(producer.transactional_id)


def partitions_are_added_as_brokers_do(talk: Talk) -> None:
    """AddPartitionsToTxn 4 and 5: several transactions, or only whether partitions are in."""
    for version in (4, 5):
        first = talk.init(talk.pair.own(f"x{version}"))
        second = talk.init(talk.pair.own(f"y{version}"))
        talk.add_batched([(first, (0,), True)], version)
        talk.add_batched([(first, (0,), False)], version)
        talk.add_batched([(first, (0, 1), True), (second, (1,), False)], version)
        talk.add_batched([(first.at(9), (0,), True), (second.at(9), (1,), False)], version)
        stranger = ScriptProducer(talk.pair.own("stranger"), STRANGE_ID, 0)
        talk.add_batched([(stranger, (0,), True), (second, {"nowhere": [0]}, False)], version)
        talk.describe(first.transactional_id, second.transactional_id)


def several_partitions_of_which_some_do_not_exist(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    batches = {
        index: transactional(producer.producer_id, producer.producer_epoch, 0)
        for index in (0, 1, 7)
    }
    for version in (11, 12, 13):
        talk.produce(batches, producer.transactional_id, version)
        talk.describe(producer.transactional_id)
    talk.look()


def offsets_of_a_transaction_become_visible_with_its_commit(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    talk.plain_offsets({0: 1, 1: 1})
    for outcome in (COMMIT, ABORT):
        talk.commit_offsets(producer, {0: 5 if outcome else 6})
        for version in range(7, 11):
            talk.fetch_offsets(version, stable=True)
            talk.fetch_offsets(version, stable=False)
        talk.plain_offsets({0: 3})
        talk.fetch_offsets(stable=False)
        talk.end(producer, outcome)
        talk.fetch_offsets()


def records_are_deleted_below_an_open_transaction(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    talk.send(producer, 0, values=(b"a", b"b"))
    talk.end(producer, COMMIT)
    talk.send(producer, 0, values=(b"c", b"d"))
    for offset in (1, 4, 5, 6, 99, -2):
        talk.delete_records({0: offset})
        talk.look((0, 0))
    talk.delete_records({0: -1, 9: 0})
    talk.look((5, 0))
    talk.describe(producer.transactional_id)
    talk.send(producer, 2)
    talk.end(producer, COMMIT)
    talk.look((5, 0))


def an_aborted_transaction_is_named_to_readers(talk: Talk) -> None:
    first, second = talk.init(talk.pair.own("x")), talk.init(talk.pair.own("y"))
    for round_ in range(3):
        talk.send(first, 0, values=(b"a",) * 3)
        talk.send(second, 0, values=(b"b",) * 2)
        talk.send(first, 3)
        talk.end(first, ABORT)
        talk.look()
        talk.end(second, round_ == 1)
        talk.look()
    for start in range(0, 24, 3):
        talk.fetch({0: start})
        talk.fetch({0: start}, partition_max_bytes=1)
