"""What may never happen, each with its name; judged when a run is over.

The checkers stand apart from the simulator. They hold against each other what clients were
told, what readers of both isolation levels saw, and the logs, from which they work out the
last stable offset, the aborted transactions and the coordinators' state by themselves.

    aborted-read         a record of an aborted transaction was shown under read_committed
    precommitted-read    a record was shown before its client asked to commit (`readers.py`)
    late-end             the same, after an answer to an earlier end of that client was lost
    zombie-commit        a transaction was committed although a successor had taken over
    lost-write           an acknowledged record, or one of a committed transaction, is missing
    torn-transaction     a transaction is shown in part
    duplicate            a value is stored twice
    offset-split         offsets and the output written with them disagree
    inconsistent-offset  a group is told another offset than was committed last
    lso-regress          the last stable offset moved back (`readers.py`)
    lso-stuck            the last stable offset did not reach the log end after every timeout
    txnindex-mismatch    the aborted transactions named are not those of the log
    recovery-divergence  state is not what replaying the log gives
    marker-leak          a reader got a record that nobody wrote
    stuck-client         a client never came to an end
    broker-error         the broker raised what it must not
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from sim.broker import Broker
from sim.copiers import GROUP, SOURCES, original_of
from sim.disk import SimLog
from sim.history import Anomaly, Attempt, Fate, History, Place
from sim.readers import Seen, read_all
from txn.coordinator.group.records import OffsetKey, decode_offset_value
from txn.coordinator.group.records import decode_key as decode_group_key
from txn.coordinator.transaction.records import decode_key, decode_value
from txn.coordinator.transaction.states import Txn
from txn.storage.base import BatchKind, StoredBatch

View = Mapping[Place, list[Seen]]


def judge(history: History, broker: Broker, *, may_lose_plain: bool) -> list[Anomaly]:
    """Name every anomaly of a run; none when all promises were kept.

    Args:
        history: What clients and readers were told.
        broker: The last one, when everything has come to rest.
        may_lose_plain: The power failed, and single writes were not promised to survive it.
    """
    places = [place for place in broker.storage.logs if not place[0].startswith("__")]
    committed = {place: read_all(broker, place, is_committed=True) for place in places}
    uncommitted = {place: read_all(broker, place, is_committed=False) for place in places}
    return [
        *history.anomalies,
        *_judge_values(history, committed, uncommitted),
        *_judge_attempts(history, committed),
        *_judge_plain(history, uncommitted, may_lose_plain=may_lose_plain),
        *_judge_copies(broker, committed),
        *judge_logs(broker, committed),
        *judge_coordinator(broker),
        *judge_groups(broker),
    ]


# -------------------------------------------------------------------- records


def _judge_values(history: History, committed: View, uncommitted: View) -> Iterator[Anomaly]:
    for place, seen in uncommitted.items():
        counts = Counter(value for _, value in seen)
        for value, count in counts.items():
            if value not in history.owner and value not in history.plain:
                yield Anomaly("marker-leak", f"{value!r} in {_text(place)} was written by nobody")
            elif count > 1:
                yield Anomaly("duplicate", f"{value.decode()} is {count} times in {_text(place)}")
        for offset, value in set(committed[place]) - set(seen):
            yield Anomaly("marker-leak", f"{value!r} at {offset} only under read_committed")


def _judge_attempts(history: History, committed: View) -> Iterator[Anomaly]:
    shown = {value for seen in committed.values() for _, value in seen}
    for attempt in history.attempts:
        here = [value for value in attempt.values if value in shown]
        ever = [value for value in attempt.values if value in history.seen_committed]
        about = f"{len(here)} of {len(attempt.values)} records of {attempt.name} are shown"
        if attempt.fate in (Fate.NEVER, Fate.OPEN):
            if here or ever:
                yield Anomaly(_name_of_wrong_end(attempt), f"{about}; it never may be")
        elif len(here) < len(attempt.values):
            if here:
                yield Anomaly("torn-transaction", about)
            elif attempt.fate is Fate.COMMITTED:
                yield Anomaly("lost-write", f"{about}; it was committed")
            elif ever:
                yield Anomaly("lost-write", f"{about}; a reader saw {len(ever)} of them")


def _name_of_wrong_end(attempt: Attempt) -> str:
    if attempt.was_fenced:
        return "zombie-commit"
    return "late-end" if attempt.follows_lost_end else "aborted-read"


def _judge_plain(history: History, uncommitted: View, *, may_lose_plain: bool) -> Iterator[Anomaly]:
    stored = {value for seen in uncommitted.values() for _, value in seen}
    for value, write in history.plain.items():
        if write.is_acknowledged and value not in stored and not may_lose_plain:
            yield Anomaly("lost-write", f"{value.decode()} was acknowledged to {write.client}")


def _judge_copies(broker: Broker, committed: View) -> Iterator[Anomaly]:
    """The output holds the input up to the group's offset: all of it, once, in order."""
    assert broker.node is not None, "it has started"
    offsets = broker.node.groups.committed(GROUP)
    for place in SOURCES:
        stored = offsets.get(place)
        position = 0 if stored is None else stored.value.offset
        wanted = [value for offset, value in committed[place] if offset < position]
        copies = [value for _, value in committed["sink", place[1]] if b">" in value]
        got = [original_of(copy) for copy in copies]
        if got != wanted:
            missing, extra = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
            yield Anomaly(
                "offset-split",
                f"the group is at {position} of {_text(place)}: {len(wanted)} records, "
                f"{len(got)} copies; missing {sorted(missing)[:3]}, too many {sorted(extra)[:3]}",
            )


# -------------------------------------------------------------------- logs


def judge_logs(broker: Broker, committed: View) -> Iterator[Anomaly]:
    """Work out from each log what its gate should know, and what readers should see."""
    for place, log in broker.storage.logs.items():
        open_firsts, aborted, visible = _transactions_of(log.stored)
        end = log.log_end_offset
        if log.last_stable_offset != end:
            holders = ", ".join(f"producer {p} from {o}" for p, o in open_firsts.items())
            yield Anomaly(
                "lso-stuck",
                f"{_text(place)}: {log.last_stable_offset} of {end}, held by {holders or 'nobody'}",
            )
        known = [entry[:3] for entry in log.gate.aborted_entries()]
        if known != aborted:
            yield Anomaly(
                "txnindex-mismatch", f"{_text(place)}: {known} is known, the log has {aborted}"
            )
        if place in committed and committed[place] != visible and not open_firsts:
            missing = [value for value in visible if value not in committed[place]]
            yield Anomaly(
                "txnindex-mismatch",
                f"{_text(place)}: readers miss {missing[:3]} or see more than its markers allow",
            )
        yield from _judge_gate(log)


def _transactions_of(
    batches: list[StoredBatch],
) -> tuple[dict[int, int], list[tuple[int, int, int]], list[Seen]]:
    """Open transactions, aborted ones by their markers, and what a committed reader sees."""
    open_batches: dict[int, list[StoredBatch]] = {}
    aborted: list[tuple[int, int, int]] = []
    visible: list[Seen] = []
    for batch in batches:
        if batch.kind is BatchKind.TRANSACTIONAL:
            open_batches.setdefault(batch.producer_id, []).append(batch)
        elif batch.kind in (BatchKind.PLAIN, BatchKind.IDEMPOTENT):
            visible += _values(batch)
        else:
            ended = open_batches.pop(batch.producer_id, [])
            if batch.kind is BatchKind.COMMIT_MARKER:
                visible += [each for batch in ended for each in _values(batch)]
            elif ended:
                aborted.append((batch.producer_id, ended[0].base_offset, batch.base_offset))
    firsts = {producer: each[0].base_offset for producer, each in open_batches.items()}
    return firsts, aborted, sorted(visible)


def _values(batch: StoredBatch) -> list[Seen]:
    return [(record.offset, record.value or b"") for record in batch.records]


def _judge_gate(log: SimLog) -> Iterator[Anomaly]:
    """A gate that replays the log knows what the live one knows (P8)."""
    replayed = SimLog(log._disk, log.topic, log.index, log._topic_id)
    if log.state() != replayed.state():
        yield Anomaly(
            "recovery-divergence",
            f"{_text(log.place)}: {log.state()} lives, replay gives {replayed.state()}",
        )


# -------------------------------------------------------------------- coordinators


def judge_coordinator(broker: Broker) -> Iterator[Anomaly]:
    """Hold what the coordinator knows against the newest record of every id (P8)."""
    assert broker.node is not None, "it has started"
    replayed: dict[str, Txn] = {}
    for (topic, _), log in broker.storage.logs.items():
        if topic != "__transaction_state":
            continue
        for batch in log.stored:
            for record in batch.records:
                transactional_id = decode_key(record.key or b"") or ""
                if record.value is None:
                    replayed.pop(transactional_id, None)
                else:
                    replayed[transactional_id] = decode_value(record.value)
    known = dict(broker.node.transactions.transactions.items())
    if known != replayed:
        yield Anomaly("recovery-divergence", f"coordinator: {known}, its log says {replayed}")


def judge_groups(broker: Broker) -> Iterator[Anomaly]:
    """Hold the committed offsets of the group against its log, folded by itself (P8)."""
    assert broker.node is not None, "it has started"
    for (topic, _), log in broker.storage.logs.items():
        if topic != "__consumer_offsets":
            continue
        folded: dict[Place, tuple[int, int]] = {}
        pending: dict[int, dict[Place, tuple[int, int]]] = {}
        for batch in log.stored:
            into = folded
            if batch.kind is BatchKind.TRANSACTIONAL:
                into = pending.setdefault(batch.producer_id, {})
            elif batch.kind in (BatchKind.COMMIT_MARKER, BatchKind.ABORT_MARKER):
                for place, found in pending.pop(batch.producer_id, {}).items():
                    if batch.kind is BatchKind.COMMIT_MARKER:
                        folded[place] = max(found, folded.get(place, found))
                continue
            for record in batch.records:
                key = decode_group_key(record.key or b"")
                if isinstance(key, OffsetKey) and record.value is not None:
                    offset = decode_offset_value(record.value).offset
                    into[key.topic, key.partition] = (record.offset, offset)
        if log.index != broker.node.groups.group_partition(GROUP):
            continue
        known = {
            place: (stored.record_offset, stored.value.offset)
            for place, stored in broker.node.groups.committed(GROUP).items()
        }
        if known != folded:
            yield Anomaly("recovery-divergence", f"group: {known}, its log says {folded}")


def _text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
