"""Anomalies that may never happen, each with its name; judged when a run is over.

The checkers stand apart from the simulator. They compare the answers of clients, the records that
readers of both isolation levels saw, and the logs. From the logs they work out the last stable
offset, the aborted transactions and the coordinators' state by themselves.

    aborted-read         a record of an aborted transaction was shown under read_committed
    precommitted-read    a record was shown before its client asked to commit (`readers.py`)
    late-end             the same, after an answer to an earlier end of that client was lost
    zombie-commit        a transaction was committed although a successor had taken over
    lost-write           an acknowledged record, or one of a committed transaction, is missing
    torn-transaction     a transaction is shown in part; also by a start that does not know of a
                         lost cache (`judge_halves`)
    duplicate            a value is stored twice
    id-reuse             a producer id and epoch were given out twice (`history.py`)
    offset-split         offsets and the output written with them disagree
    inconsistent-offset  a group is told another offset than was committed last; or a cleaned log
                         shows at an offset another record than the one written there
    lso-regress          the last stable offset moved back (`readers.py`); but for a marker that
                         power took and the disk refuses at the start (`first_without_marker`)
    lso-stuck            the last stable offset did not reach the log end after every timeout
    txnindex-mismatch    the aborted transactions named are not those of the log
    recovery-divergence  state is not what replaying the log gives
    marker-leak          a reader got a record that nobody wrote
    deleted-read         records that were deleted are there again (`readers.py`)
    damage-served        a damaged batch was shown, or taken for the state of a coordinator
    damage-unnamed       a broker that will not start for damage does not say where
    false-alarm          a start took a kill for a lost cache (`world.py`)
    stuck-client         a client never came to an end
    broker-error         the broker raised what it must not
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from functools import lru_cache

from sim.broker import SimBroker
from sim.cleaning import DELETE_RETENTION_MS, is_tombstone, key_of
from sim.copiers import GROUP, SOURCES, offsets_in, original_of
from sim.disk import SimLog
from sim.history import Anomaly, Attempt, Fate, History, Place
from sim.readers import Seen, read_all
from txn.broker.host import Durability
from txn.coordinator.transaction.records import decode_key, decode_value
from txn.coordinator.transaction.states import AT_REST, PREPARED, Txn
from txn.storage.base import BatchKind, StoredBatch

View = Mapping[Place, list[Seen]]
MAY_BE_SHOWN = (Fate.ASKED, Fate.UNCERTAIN, Fate.COMMITTED)


def judge(history: History, broker: SimBroker, *, may_lose_plain: bool) -> list[Anomaly]:
    """Name every anomaly of a run; none when all promises were kept.

    Args:
        history: The answers of clients and the records of readers.
        broker: The last one, when everything has come to rest.
        may_lose_plain: The power failed, and single writes were not promised to survive it.
    """
    places = [place for place in broker.storage.logs if not place[0].startswith("__")]
    committed = {place: read_all(broker, place, is_committed=True) for place in places}
    uncommitted = {place: read_all(broker, place, is_committed=False) for place in places}
    gone = {value for place in places for value in _gone(broker.storage.logs[place])}
    gone |= {value for place in places for value in _replaced(broker.storage.logs[place])}
    return [
        *history.anomalies,
        *_judge_values(history, committed, uncommitted),
        *_judge_attempts(history, committed, gone),
        *_judge_plain(history, uncommitted, gone, may_lose_plain=may_lose_plain),
        *_judge_copies(broker, committed),
        *_judge_offsets(history, broker),
        *judge_logs(broker, committed),
        *judge_coordinator(broker),
        *judge_groups(broker),
        *_judge_producer_states(broker),
    ]


def _gone(log: SimLog) -> Iterator[bytes]:
    """The values that nobody is to be shown: those deleted, and those found damaged."""
    for batch in log.written:
        is_damaged = log.is_damaged(batch.base_offset)
        for record in batch.records:
            if is_damaged or record.offset < log.log_start_offset:
                yield record.value or b""


def _replaced(log: SimLog) -> Iterator[bytes]:
    """The committed values of a log that the cleaner may have taken away.

    They are those with a later committed record of their key, and tombstones that were the last of
    theirs for long enough. Both lie below the end of a cleaning.
    """
    if log.file is None or not log.is_cleaned:
        return
    cleanings = log.file.cleanings
    end = max(end for end, _ in cleanings)
    _, _, visible = _transactions_of(log.file.originals)
    last = {key_of(value): offset for offset, value in visible if offset < end}
    for offset, value in visible:
        if offset >= end:
            return
        passes_ms = [now_ms for end, now_ms in cleanings if offset < end]
        is_due = max(passes_ms) - min(passes_ms) >= DELETE_RETENTION_MS
        if offset < last[key_of(value)] or (is_tombstone(value) and is_due):
            yield value


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


def _judge_attempts(history: History, committed: View, gone: Set[bytes]) -> Iterator[Anomaly]:
    shown = {value for seen in committed.values() for _, value in seen}
    for attempt in history.attempts:
        wanted = attempt.values.keys() - gone
        missing = wanted - shown
        here = [value for value in attempt.values if value in shown]
        ever = [value for value in attempt.values if value in history.seen_committed]
        about = f"{len(wanted - missing)} of {len(wanted)} records of {attempt.name} are shown"
        if attempt.fate in (Fate.NEVER, Fate.OPEN):
            if here or ever:
                yield Anomaly(_name_of_wrong_end(attempt), f"{about}; it never may be")
        elif missing:
            if here:
                yield Anomaly("torn-transaction", about)
            elif attempt.fate is Fate.COMMITTED:
                yield Anomaly("lost-write", f"{about}; it was committed")
            elif attempt.is_decided:
                yield Anomaly("lost-write", f"{about}; its commit was decided elsewhere")
            elif ever:
                yield Anomaly("lost-write", f"{about}; a reader saw {len(ever)} of them")


def judge_halves(history: History, broker: SimBroker) -> Iterator[Anomaly]:
    """A start that does not know of a lost cache decides nothing by which a transaction is torn.

    Judged by the markers that are stored when it has come to its end, before a client comes. Where
    a disk refuses, markers are still to come.
    """
    logs = [log for place, log in broker.storage.logs.items() if not place[0].startswith("__")]
    if any(log.file is not None and (log.file.is_full or log.file.is_unsyncable) for log in logs):
        return
    shown, gone = set(), set()
    for log in logs:
        _, _, visible = _transactions_of(log.written)
        shown |= {value for _, value in visible}
        gone |= {*_gone(log), *_replaced(log)}
    for attempt in history.attempts:
        wanted = attempt.values.keys() - gone
        if 0 < len(wanted & shown) < len(wanted):
            yield Anomaly(
                "torn-transaction",
                f"{len(wanted & shown)} of {len(wanted)} records of {attempt.name} are shown by a "
                "start that does not know of a lost cache",
            )


def _name_of_wrong_end(attempt: Attempt) -> str:
    if attempt.was_fenced:
        return "zombie-commit"
    return "late-end" if attempt.follows_lost_end else "aborted-read"


def _judge_plain(
    history: History, uncommitted: View, gone: Set[bytes], *, may_lose_plain: bool
) -> Iterator[Anomaly]:
    stored = {value for seen in uncommitted.values() for _, value in seen} | gone
    for value, write in history.plain.items():
        if write.is_acknowledged and value not in stored and not may_lose_plain:
            yield Anomaly("lost-write", f"{value.decode()} was acknowledged to {write.client}")


def _judge_copies(broker: SimBroker, committed: View) -> Iterator[Anomaly]:
    """The output holds the input up to the group's offset: all of it, once, in order."""
    assert broker.node is not None, "it has started"
    offsets = broker.node.groups.offsets.committed(GROUP)
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


def _judge_offsets(history: History, broker: SimBroker) -> Iterator[Anomaly]:
    """Offsets without copies are those of a transaction that committed."""
    assert broker.node is not None, "it has started"
    committed = broker.node.groups.offsets.committed(GROUP)
    for place in {place for each in history.attempts for place in each.offsets} - {*SOURCES}:
        owners = [each for each in history.attempts if place in each.offsets]
        stored = committed.get(place)
        offset = -1 if stored is None else stored.value.offset
        wanted = {each.offsets[place] for each in owners if each.fate in MAY_BE_SHOWN}
        if not any(each.fate is Fate.COMMITTED or each.is_decided for each in owners):
            wanted.add(-1)
        if offset not in wanted:
            text = f"the group is at {offset} of {_text(place)}, not at any of {sorted(wanted)}"
            yield Anomaly("inconsistent-offset", text)


# -------------------------------------------------------------------- logs


def judge_logs(broker: SimBroker, committed: View) -> Iterator[Anomaly]:
    """Work out from each log its producer state, and the records that readers should see."""
    for place, log in broker.storage.logs.items():
        open_firsts, aborted, visible = _transactions_of(log.written)
        yield from _judge_batches(log)
        end = log.log_end_offset
        if log.last_stable_offset != end:
            holders = ", ".join(f"producer {p} from {o}" for p, o in open_firsts.items())
            yield Anomaly(
                "lso-stuck",
                f"{_text(place)}: {log.last_stable_offset} of {end}, held by {holders or 'nobody'}",
            )
        known = [entry[:3] for entry in log.producer_state.aborted_entries()]
        # A start that replays the log does not find a transaction whose batches were deleted.
        replayed = {(entry[0], entry[2]) for entry in _transactions_of(log.stored)[1]}
        aborted = [
            entry
            for entry in aborted
            if entry[2] >= log.first_kept and (entry in known or (entry[0], entry[2]) in replayed)
        ]
        if known != aborted and not (log.is_cleaned and _is_left_of(log, known, aborted)):
            yield Anomaly(
                "txnindex-mismatch", f"{_text(place)}: {known} is known, the log has {aborted}"
            )
        if log.is_cleaned and place in committed:
            yield from _judge_cleaned(log, committed[place])
        gone = set(_gone(log))
        visible = [each for each in visible if each[1] not in gone]
        if place in committed and committed[place] != visible and not open_firsts:
            missing = [value for value in visible if value not in committed[place]]
            yield Anomaly(
                "txnindex-mismatch",
                f"{_text(place)}: readers miss {missing[:3]} or see more than its markers allow",
            )


def _is_left_of(
    log: SimLog, known: list[tuple[int, int, int]], aborted: list[tuple[int, int, int]]
) -> bool:
    """True if known transactions are those of a cleaned log.

    Where they began may be gone, and as long as the marker is there everything but it.
    """
    names = {(producer_id, last) for producer_id, _, last in known}
    markers = {
        (batch.producer_id, batch.base_offset)
        for batch in log.stored
        if batch.kind is BatchKind.ABORT_MARKER
    }
    return {(producer_id, last) for producer_id, _, last in aborted} <= names <= markers


def judge_cleaning(broker: SimBroker, place: Place) -> Iterator[Anomaly]:
    """Compare the records that a reader finds after a cleaning with the written ones."""
    shown = read_all(broker, place, is_committed=True)
    yield from _judge_cleaned(broker.storage.logs[place], shown)


def _judge_cleaned(log: SimLog, shown: list[Seen]) -> Iterator[Anomaly]:
    assert log.file is not None, "it was cleaned"
    _, _, decided = _transactions_of(log.file.originals)
    visible = [each for each in decided if each[0] < log.last_stable_offset]
    written = {each for batch in log.file.originals for each in _values(batch)}
    where = _text(log.place)
    for offset, value in set(shown) - set(visible):
        name = "aborted-read" if (offset, value) in written else "inconsistent-offset"
        yield Anomaly(name, f"{value!r} is shown at {offset} of {where}, which was cleaned")
    may_be_gone = {*_replaced(log), *_gone(log)}
    for offset, value in set(visible) - set(shown):
        if value not in may_be_gone:
            text = f"{value!r} at {offset} of {where} is the last of its key, and was cleaned away"
            yield Anomaly("lost-write", text)


def _transactions_of(
    batches: list[StoredBatch],
) -> tuple[dict[int, int], list[tuple[int, int, int]], list[Seen]]:
    """Open transactions, aborted ones by their markers, and the view of a committed reader."""
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


def _judge_batches(log: SimLog) -> Iterator[Anomaly]:
    """A log that was never cleaned has every written batch behind its first segment."""
    wanted = [batch for batch in log.written if batch.base_offset >= log.first_kept]
    if wanted != log.stored:
        missing = [batch for batch in wanted if batch not in log.stored]
        yield Anomaly("lost-write", f"{_text(log.place)}: not stored as written: {missing[:3]}")


def _judge_producer_states(broker: SimBroker) -> Iterator[Anomaly]:
    """A producer state that replays its log equals the live one (P8).

    But for the aborted transactions of a cleaned log, of which nothing but the markers may be left,
    and for the producers that a snapshot alone knows. Power may take the last bytes of an entry of
    the transaction index. Its last stable offset is then too low, and a reader's search longer.
    """
    logs = broker.storage.logs
    lives = {place: (log.state(), log.known_by_snapshot()) for place, log in logs.items()}
    for place, (live, known_by_snapshot) in lives.items():
        log = logs[place]
        replayed = log.replayed().state()
        if log.is_cleaned:
            live, replayed = live._replace(aborted=[]), replayed._replace(aborted=[])
        live, replayed = live.without(known_by_snapshot), replayed.without(known_by_snapshot)
        if all(here <= there for here, there in zip(live.aborted, replayed.aborted, strict=False)):
            live = live._replace(aborted=[(*each[:3], 0) for each in live.aborted])
            replayed = replayed._replace(aborted=[(*each[:3], 0) for each in replayed.aborted])
        if live != replayed:
            text = f"{_text(place)}: {live} lives, replay gives {replayed}"
            yield Anomaly("recovery-divergence", text)


# -------------------------------------------------------------------- coordinators


def judge_coordinator(broker: SimBroker) -> Iterator[Anomaly]:
    """Compare the coordinator's state with the newest record of every id (P8)."""
    assert broker.node is not None, "it has started"
    replayed = _stored_transactions(broker)
    known = dict(broker.node.transactions.transactions.items())
    if known != replayed:
        yield Anomaly("recovery-divergence", f"coordinator: {known}, its log says {replayed}")
    forced = {txn.producer_id for txn in replayed.values() if _is_forced(broker, txn)}
    if broker.catalog.forced != forced:
        yield Anomaly(
            "recovery-divergence",
            f"coordinator: batches of {broker.catalog.forced} are forced, of {forced} have to be",
        )


def _is_forced(broker: SimBroker, txn: Txn) -> bool:
    """True if batches of a transaction are on the disk before they are acknowledged."""
    assert broker.node is not None, "it has started"
    is_open = txn.state not in AT_REST and txn.is_two_phase
    return is_open and broker.node.durability is Durability.COMMIT


def _stored_transactions(broker: SimBroker) -> dict[str, Txn]:
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
                    replayed[transactional_id] = _decoded(record.value)
    return replayed


@lru_cache(maxsize=1_000)
def _decoded(value: bytes) -> Txn:
    """The transaction of a record; every start of a run reads the same ones."""
    return decode_value(value)


def first_without_marker(broker: SimBroker, place: Place) -> int | None:
    """Where the first transaction begins that is decided and has no marker in a partition.

    After a power failure the last stable offset may be back there, if the disk refuses the
    marker anew. P5 is kept for readers all the same. The leader epoch tells them of the cut, and
    the marker comes before anything behind it is shown.
    """
    decided = {
        txn.producer_id
        for txn in _stored_transactions(broker).values()
        if txn.state in PREPARED and place in txn.partitions
    }
    open_firsts, _, _ = _transactions_of(broker.storage.logs[place].written)
    return min((first for each, first in open_firsts.items() if each in decided), default=None)


def judge_damage(broker: SimBroker) -> Iterator[Anomaly]:
    """A broker that has started read every batch of its coordinators, and found none damaged."""
    for (topic, index), log in broker.storage.logs.items():
        for batch in log.stored if topic.startswith("__") else ():
            if log.is_damaged(batch.base_offset):
                text = f"it started on {topic}-{index}, damaged at {batch.base_offset}"
                yield Anomaly("damage-served", text)


def judge_groups(broker: SimBroker) -> Iterator[Anomaly]:
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
            for place, record_offset, offset in offsets_in(batch):
                into[place] = (record_offset, offset)
        if log.index != broker.node.groups.group_partition(GROUP):
            continue
        known = {
            place: (stored.record_offset, stored.value.offset)
            for place, stored in broker.node.groups.offsets.committed(GROUP).items()
        }
        if known != folded:
            yield Anomaly("recovery-divergence", f"group: {known}, its log says {folded}")


def _text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
