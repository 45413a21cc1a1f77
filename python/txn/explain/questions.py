"""The questions an operator has, and their answers from a source of facts.

Facts arrive one after the other while the cluster keeps running. So an apparent hanging transaction
is checked again, and counts only if it is open both times. A transaction that ends in between is
gone from its partitions before its coordinator forgets it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from txn.cluster.facts import (
    Completion,
    FactSource,
    LoggedBatch,
    OpenTransaction,
    Owner,
    PartitionOffsets,
    StateRecord,
)
from txn.coordinator.transaction.decide import ended_as
from txn.coordinator.transaction.states import COMPLETED, PREPARED, TxnState
from txn.errors import ConfigError, CorruptLogError, RejectedError, RetriableError
from txn.explain.timeline import (
    Event,
    coordinator_events,
    in_order,
    is_cut_off,
    newest_transaction,
    partition_events,
    transaction_in,
)
from txn.explain.verdict import Verdict, judge, owns
from txn.hints import did_you_mean
from txn.identifiers import ProducerIdAndEpoch, TopicPartition

SCAN_BYTES_MAX: Final = 64 << 20
"""Bytes read from a log at most, to count waiting records or to find those of a transaction."""

OLDER_MS: Final = 60_000
"""The age by which a record may precede its transaction: a client sets its time, then waits."""


NAMED_MAX: Final = 10
"""Number of topics named where one is missing."""


@dataclass(frozen=True, slots=True)
class HoldingTransaction:
    """A transaction that a partition holds open, whose it is, and how it stands.

    `since_ms` is when it began: by its coordinator; of one that hangs, by its first record.
    """

    open: OpenTransaction
    owner: Owner | None
    verdict: Verdict
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class WaitingRecords:
    """Records that read_committed cannot see yet.

    Attributes:
        offsets: From the last stable offset to the end of the log; markers count too.
        own: Records of the transaction that holds the offset.
        others_open: Records of other transactions that are open.
        decided: Records of transactions that have ended.
        plain: Records outside of transactions.
        is_whole: Whether all were counted; else there are more.
    """

    offsets: int
    own: int
    others_open: int
    decided: int
    plain: int
    is_whole: bool

    @property
    def records(self) -> int:
        """All records that wait."""
        return self.own + self.others_open + self.decided + self.plain


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events of a transaction, oldest first, and the gaps of the list."""

    events: tuple[Event, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why readers of a partition stand where they do.

    `held` is by first offset, so the first one holds the last stable offset; without any,
    nothing holds it and `waiting` and `timeline` are None.
    """

    partition: TopicPartition
    ends: PartitionOffsets
    held: tuple[HoldingTransaction, ...]
    waiting: WaitingRecords | None
    timeline: Timeline | None


# ---------------------------------------------------------------- partitions


def partitions_of(source: FactSource, name: str, index: int | None) -> list[TopicPartition]:
    """The partitions that TOPIC or TOPIC-PARTITION names.

    Raises:
        ConfigError: the name fits a topic and a partition of another one, or nothing.
    """
    topics = source.topics()
    topic, _, number = name.rpartition("-")
    is_number = number.isdecimal() and len(number) <= 10
    is_partition = is_number and int(number) in topics.get(topic, ())
    if index is not None:
        if index in topics.get(name, ()):
            return [(name, index)]
    elif name in topics and is_partition:
        raise ConfigError(
            f"{name!r} is a topic, and partition {number} of topic {topic!r}. Say which: "
            f"--partition N with topic {name!r}, or {topic!r} --partition {number}"
        )
    elif name in topics:
        return [(name, each) for each in topics[name]]
    elif is_partition:
        return [(topic, int(number))]
    raise ConfigError(_missing(name, index, topics))


def _missing(name: str, index: int | None, topics: Mapping[str, Sequence[int]]) -> str:
    topic, _, number = (name, "", str(index)) if index is not None else name.rpartition("-")
    if number.isdecimal() and topic in topics:
        count = len(topics[topic])
        have = f"partitions 0 to {count - 1}" if count > 1 else "partition 0 alone"
        return f"topic {topic!r} has no partition {number}; it has {have}"
    known = sorted(topics)
    alike = get_close_matches(name, known, n=3)
    if alike:
        return f"there is no topic {name!r}; did you mean {' or '.join(alike)}?"
    if not known:
        return f"there is no topic {name!r}, nor any other topic"
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return f"there is no topic {name!r}; there is {', '.join(known[:NAMED_MAX])}{more}"


def all_partitions(source: FactSource) -> list[TopicPartition]:
    """Every partition of every topic, internal ones too."""
    return [(topic, index) for topic, indexes in source.topics().items() for index in indexes]


# ---------------------------------------------------------------- what is open


def held_open(
    source: FactSource, partitions: Collection[TopicPartition]
) -> list[HoldingTransaction]:
    """Open transactions of partitions, by partition and first offset."""
    held_now = _holding_transactions(source, partitions)
    doubtful = {held.open.partition for held in held_now if held.verdict.standing.is_finding}
    if not doubtful or not source.is_running:
        return held_now
    again = {
        (each.open.partition, each.open.producer_id): each
        for each in _holding_transactions(source, doubtful)
    }
    confirmed = []
    for held in held_now:
        if held.open.partition not in doubtful:
            confirmed.append(held)
            continue
        later = again.get((held.open.partition, held.open.producer_id))
        if later is not None and later.open.first_offset == held.open.first_offset:
            confirmed.append(later)
    return confirmed


def held_where_allowed(
    source: FactSource, partitions: Collection[TopicPartition]
) -> tuple[list[HoldingTransaction], Mapping[TopicPartition, str]]:
    """Open transactions of the partitions that can be asked, and why others were left out.

    A user may see a topic by Write or Describe alone, and its open transactions by Read alone.
    """
    try:
        return held_open(source, partitions), source.left_out
    except RejectedError:
        refused = source.refused(partitions)
        if not refused:
            raise
    return held_open(source, [each for each in partitions if each not in refused]), refused


def _holding_transactions(
    source: FactSource, partitions: Collection[TopicPartition]
) -> list[HoldingTransaction]:
    opened = source.open_transactions(partitions)
    producer_ids = {each.producer_id for each in opened}
    known = source.owners(producer_ids) if producer_ids else []
    owners = {each.producer_id: _with_times(source, each) for each in known}
    now_ms = source.now_ms()
    strangers = [each for each in opened if each.producer_id not in owners]
    unread = source.unread() if strangers else []
    judged = []
    for each in opened:
        owner = owners.get(each.producer_id)
        is_owned = owner is not None and owns(owner, each)
        completed = None if is_owned else _completion_of(source, each, owner)
        verdict = judge(
            each,
            owner,
            now_ms=now_ms,
            is_running=source.is_running,
            completed=completed,
            unread=unread if owner is None else source.unread(owner.transactional_id),
            at_start=source.at_start(each),
        )
        since_ms = (
            owner.start_ms if owner is not None and is_owned else _first_timestamp(source, each)
        )
        judged.append(HoldingTransaction(each, owner, verdict, since_ms))
    return judged


def _completion_of(
    source: FactSource, held: OpenTransaction, owner: Owner | None
) -> Completion | None:
    """Find the end that the coordinator gave to a partition's open transactions, if any.

    Of an id that has another producer id by now only a directory tells: there all ids are looked
    through.
    """
    candidates = [] if owner is None else [owner]
    if owner is None and not source.is_running:
        candidates = source.owners()
    producer = ProducerIdAndEpoch(held.producer_id, held.producer_epoch)
    for candidate in candidates:
        if source.unread(candidate.transactional_id):
            continue  # a later transaction of it may be among the unread records
        records: list[StateRecord] = []
        with suppress(RejectedError):  # the user may not read it
            records = source.history(candidate.transactional_id)
        for record in reversed(records):
            txn = record.txn
            if txn is None or txn.state not in COMPLETED:
                continue
            if producer == txn.producer or ended_as(txn, producer):
                is_commit = txn.state is TxnState.COMPLETE_COMMIT
                return Completion(candidate.transactional_id, is_commit, txn.updated_ms)
    return None


def _first_timestamp(source: FactSource, held: OpenTransaction) -> int | None:
    with suppress(CorruptLogError):
        first = next(_bounded(source.batches(held.partition, held.first_offset), None), None)
        return None if first is None else first.batch.max_timestamp_ms
    return None


def _with_times(source: FactSource, owner: Owner) -> Owner:
    """Find out since when an id is in a Prepare, where its coordinator does not say."""
    if owner.updated_ms is not None or owner.state not in PREPARED:
        return owner
    history: list[StateRecord] = []
    with suppress(RejectedError):  # the user may not read it
        history = source.history(owner.transactional_id)
    newest = history[-1].txn if history else None
    if newest is None or newest.state is not owner.state:
        return owner
    return replace(owner, updated_ms=newest.updated_ms)


def findings(
    source: FactSource, partitions: Collection[TopicPartition]
) -> list[HoldingTransaction]:
    """Transactions that hold readers back and will not end by themselves in time."""
    return [held for held in held_open(source, partitions) if held.verdict.standing.is_finding]


def explain(source: FactSource, partitions: Sequence[TopicPartition]) -> list[Explanation]:
    """Explain for each partition which transactions hold back its readers."""
    held = held_open(source, partitions)
    ends = source.ends(partitions)
    explained = []
    for partition in partitions:
        if partition not in ends:
            topic, index = partition
            raise RetriableError(
                f"no broker leads {topic}-{index} at the moment. Bring one of its replicas back"
            )
        here = tuple(each for each in held if each.open.partition == partition)
        waiting = timeline = None
        if here:
            waiting = count_waiting(source, ends[partition], here)
            timeline = timeline_of(source, here[0].owner, [each.open for each in here[:1]])
        explained.append(Explanation(partition, ends[partition], here, waiting, timeline))
    return explained


def count_waiting(
    source: FactSource, ends: PartitionOffsets, held: Sequence[HoldingTransaction]
) -> WaitingRecords:
    """Count the records behind the oldest of a partition's open transactions."""
    oldest = held[0].open
    first_offsets = {each.open.producer_id: each.open.first_offset for each in held}
    counts = dict.fromkeys(("own", "others_open", "decided", "plain"), 0)
    begin = next_offset = ends.first_of(oldest)
    for each in _bounded(source.batches(oldest.partition, begin), ends.end_offset):
        batch = each.batch
        next_offset = batch.last_offset + 1
        if batch.is_control:
            continue
        kind = "plain"
        if batch.is_transactional:
            opened = first_offsets.get(batch.producer_id)
            is_open = opened is not None and batch.base_offset >= opened
            is_own = batch.producer_id == oldest.producer_id
            kind = ("own" if is_own else "others_open") if is_open else "decided"
        counts[kind] += batch.record_count
    return WaitingRecords(
        offsets=ends.end_offset - begin,
        is_whole=next_offset >= ends.end_offset,
        **counts,
    )


def _bounded(batches: Iterator[LoggedBatch], end_offset: int | None) -> Iterator[LoggedBatch]:
    """Batches below an offset, up to as many bytes as are read for one question.

    None where the user may not read the topic: the other facts are worth telling without it.
    """
    left = SCAN_BYTES_MAX
    with suppress(RejectedError):
        for each in batches:
            if left <= 0 or (end_offset is not None and each.batch.base_offset >= end_offset):
                return
            left -= each.batch.size_bytes
            yield each


# ---------------------------------------------------------------- one transaction


def timeline_of(
    source: FactSource, owner: Owner | None, opened: Sequence[OpenTransaction]
) -> Timeline:
    """Return the life of a transaction.

    Args:
        source: Where to look.
        owner: Whose newest transaction; None if it is not known.
        opened: Where it is known to be open; the rest is looked up by time.
    """
    notes: list[str] = []
    events: list[Event] = []
    records: list[StateRecord] = []
    hangs = [each for each in opened if owner is None or each.partition not in owner.partitions]
    if owner is not None and not hangs:
        with suppress(RejectedError):  # the user may not read it
            records = newest_transaction(source.history(owner.transactional_id))
        events += coordinator_events(records)
        if not records:
            notes.append("__transaction_state could not be read, so its records are not shown")
        elif is_cut_off(records):
            notes.append("compaction has taken the beginning from __transaction_state")
    txn = transaction_in(records)
    places = {each.partition: (each.first_offset, each.producer_id) for each in opened}
    if txn is not None:
        for partition in sorted(txn.partitions - places.keys()):
            try:
                offset = _begin_of(source, partition, txn.producer_id, txn.start_ms)
            except RejectedError as error:
                notes.append(f"{partition[0]}-{partition[1]} was left out: {error.message}")
                continue
            if offset is None:
                notes.append(f"no records of it were found in {partition[0]}-{partition[1]}")
            else:
                places[partition] = offset, txn.producer_id
    for partition, (offset, producer_id) in places.items():
        batches = _bounded(source.batches(partition, offset), None)
        may_be_open = owner is None or is_open(owner) or bool(hangs)
        events_there = partition_events(partition, batches, producer_id, is_open=may_be_open)
        if not any(event.kind == "records" for event in events_there):
            notes.append(f"no records of it were found in {partition[0]}-{partition[1]}")
        events += events_there
    return Timeline(tuple(in_order(events)), tuple(notes))


def _begin_of(
    source: FactSource, partition: TopicPartition, producer_id: int, start_ms: int
) -> int | None:
    """First offset to search for the records of a transaction in a partition."""
    if partition[1] not in source.topics().get(partition[0], ()):
        return None  # it was deleted since
    for held in source.open_transactions([partition]):
        if held.producer_id == producer_id:
            return held.first_offset
    return source.offset_at(partition, start_ms - OLDER_MS)


def unknown_id(source: FactSource, transactional_id: str, advice: str) -> ConfigError:
    """Return the error for an unknown id, with the nearest one, or else the advice."""
    with suppress(RejectedError):  # the user may not see them
        advice = did_you_mean(transactional_id, source.transactional_ids()) or advice
    return ConfigError(f"no coordinator knows transactional id {transactional_id!r}{advice}")


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """A transactional id: its state, its newest transaction, and the partitions it holds open.

    `left_out` are the partitions of an open transaction that the user may not read, with reasons.
    """

    owner: Owner
    timeline: Timeline
    holds: Sequence[HoldingTransaction]
    left_out: Mapping[TopicPartition, str]


def described(source: FactSource, transactional_id: str) -> DescribedTransaction:
    """Describe a transactional id. A partition that the user may not read is left out.

    Raises:
        ConfigError: it is unknown; the message has the nearest id.
    """
    owner = source.owner(transactional_id)
    if owner is None:
        raise unknown_id(
            source,
            transactional_id,
            ": it never was used, or not for `transactional.id.expiration.ms`. This names all ids: "
            f"txn transactions list {source.options}",
        )
    owner = _with_times(source, owner)
    places = _existing(source, owner.partitions) if is_open(owner) else []
    held, left_out = held_where_allowed(source, places)
    own = tuple(
        each
        for each in held
        if each.owner is not None and each.open.producer_id == owner.producer_id
    )
    timeline = timeline_of(source, owner, [each.open for each in own])
    return DescribedTransaction(owner, timeline, own, left_out)


def _existing(source: FactSource, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    topics = source.topics()
    return [each for each in sorted(partitions) if each[1] in topics.get(each[0], ())]


def is_open(owner: Owner) -> bool:
    """Return True if an id has a transaction that is open or ends just now."""
    return owner.state in PREPARED | {TxnState.ONGOING}


def listed(
    source: FactSource,
    *,
    states: Collection[TxnState] = (),
    longer_than_ms: int | None = None,
    prefix: str = "",
) -> list[Owner]:
    """The transactional ids that pass every filter, open ones first, oldest first.

    Args:
        source: Where to look.
        states: In any of these; all if there is none.
        longer_than_ms: With a transaction open for longer.
        prefix: The beginning of their names.
    """
    now_ms = source.now_ms()

    def passes(owner: Owner) -> bool:
        age_ms = now_ms - owner.start_ms if is_open(owner) and owner.start_ms is not None else -1
        return (
            (not states or owner.state in states)
            and (longer_than_ms is None or age_ms > longer_than_ms)
            and owner.transactional_id.startswith(prefix)
        )

    passing = filter(passes, source.owners())
    return sorted(
        passing,
        key=lambda owner: (
            not is_open(owner),
            owner.start_ms if is_open(owner) and owner.start_ms is not None else 0,
            owner.transactional_id,
        ),
    )
