"""Every power failure that a commit which waits for the disk once can meet, within small bounds.

The order of a commit with `durability=commit`, as `docs/decisions/0007` has it:

1. PREPARE is appended at once. It names the last offset of each partition of the transaction.
2. The partitions and PREPARE are synced together, in any order.
3. Then come the answer, the markers and COMPLETE. None of them waits for the disk, but for the
   COMPLETE of an abort: it follows the sync of its partitions.

Each record of a transactional id carries the markers that may not be on the disk yet: partition,
offset, result. So the last record of an id tells a start everything, after any cleaning. A
start after a power failure goes by these rules:

a. A carried marker is written again if the partition's open transaction begins below it.
b. A PREPARE to commit whose named offsets are all there is finished. One that names an offset at
   or behind a log's end was never answered and has no marker: the start decides to abort it, and
   syncs that decision before it writes a marker.
c. Each other open transaction belongs to no decision: the start aborts it.
d. The start's own record carries its markers, and all of it is synced before anything is served.

The search is breadth-first over all interleavings of appends, syncs and power failures, so its
story of an anomaly is a shortest one. A power failure cuts each log anywhere behind its last sync;
it may come while a start is under way. A log's index is its offset. A record at the same offset may
be another one after a failure, which makes the rules subtle.

By hand, with larger bounds: `PYTHONPATH=tests python -m model.commit_search 2 2 0` (transactions,
power failures, records of another producer): 1.1 million states, none with an anomaly. With
another producer's records it was one transaction and two failures.

Two short-cuts look safe and are not:

- Rule d without the markers. Power fails again during the start: its record is left, a marker is
  lost, and the transaction is aborted in one partition only.
- Rule b without a sync of the decision. The start's abort marker fills the offset that PREPARE
  names, and power fails again. The next start finds all named offsets, commits the transaction in
  one partition, and has aborted it in another. For the same reason a named offset counts with its
  leader epoch: another id's marker, or a client while a partition of `__transaction_state` is
  unread, can fill it too. Each power failure begins a leader epoch.

These cases lie outside the bounds:

- A compacted partition. Rule b mistakes no gap for a stored record, since a log loses only a tail:
  gaps of txn's cleaner lie within segments, and power loses the ends of segments. So a start cuts a
  log at a gap between two segments. It keeps such a gap below the recovery point or the end of the
  last cleaning, where Apache Kafka's cleaner leaves one (`rust/txn-log/src/recovery/mod.rs`).
- An operator accepts the loss of a partition's tail (`txn log accept-loss`). There a PREPARE is
  finished by its content, with any named offsets.
- A lost cache that no record proves, until an operator reports it (`txn log lost-cache`). A client
  may meanwhile continue an open transaction that has lost records.
- A topic is deleted and made anew: a named offset or a marker counts for its topic id only.
- `durability=process` promises nothing over a power failure. It names no offsets and carries no
  markers.
"""

import sys
from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import product
from typing import Final, NamedTuple

PARTITIONS: Final = (0, 1)
RECORDS_MAX: Final = 2
"""Of one transaction in partition 0, so that a failure can leave a part of them."""


class TxnResult(Enum):
    """The end of a transaction."""

    COMMIT = "commit"
    ABORT = "abort"


class Phase(Enum):
    """Where the one transactional id stands."""

    IDLE = "idle"
    OPEN = "open"
    PREPARED = "prepared"
    DECIDING = "a start has decided to abort"
    FINISHING = "a start has written its markers"


class ModelRules(NamedTuple):
    """Each rule can be broken, to show that the search notices."""

    waits_for_data: bool = True
    waits_for_prepare: bool = True
    looks_at_named_offsets: bool = True
    looks_where_open_begins: bool = True
    carries_markers: bool = True
    start_syncs: bool = True
    start_carries_markers: bool = True


class Bounds(NamedTuple):
    """The bounds of the search."""

    transactions: int = 1
    power_failures: int = 2
    foreign_records: int = 1
    """Records of another producer, which take offsets."""


class Data(NamedTuple):
    """A record of a transaction. Its number is for the checker; the rules do not read it."""

    transaction: int


class Marker(NamedTuple):
    """The end of a transaction in one partition."""

    result: TxnResult


class Foreign(NamedTuple):
    """A record of another producer."""


Entry = Data | Marker | Foreign


class ModelLog(NamedTuple):
    """A partition's log; a power failure keeps at least the first `synced` entries."""

    entries: tuple[Entry, ...] = ()
    synced: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> "ModelLog":
        return self._replace(entries=(*self.entries, entry))

    def sync(self) -> "ModelLog":
        return self._replace(synced=self.end)

    def cut(self, end: int) -> "ModelLog":
        return ModelLog(self.entries[:end], end)

    def open_begins_at(self) -> int | None:
        """Find the first offset of the open transaction."""
        begins_at = None
        for offset, entry in enumerate(self.entries):
            if isinstance(entry, Marker):
                begins_at = None
            elif isinstance(entry, Data) and begins_at is None:
                begins_at = offset
        return begins_at

    def committed(self) -> dict[int, int]:
        """Count the committed records of each transaction."""
        counts: dict[int, int] = {}
        pending: list[int] = []
        for entry in self.entries:
            if isinstance(entry, Data):
                pending.append(entry.transaction)
            elif isinstance(entry, Marker):
                for number in pending if entry.result is TxnResult.COMMIT else ():
                    counts[number] = counts.get(number, 0) + 1
                pending = []
        return counts


class Carried(NamedTuple):
    """A marker that may not be on the disk."""

    partition: int
    result: TxnResult
    offset: int


class TxnRecord(NamedTuple):
    """A record of the transactional id in `__transaction_state`."""

    is_prepare: bool
    result: TxnResult | None = None
    named: tuple[tuple[int, int], ...] = ()
    carried: tuple[Carried, ...] = ()


class TxnLog(NamedTuple):
    """`__transaction_state`; a power failure keeps at least the first `synced` records."""

    records: tuple[TxnRecord, ...] = ()
    synced: int = 0

    @property
    def last(self) -> TxnRecord:
        return self.records[-1] if self.records else TxnRecord(is_prepare=False)

    def append(self, record: TxnRecord) -> "TxnLog":
        return self._replace(records=(*self.records, record))

    def sync(self) -> "TxnLog":
        return self._replace(synced=len(self.records))

    def cut(self, end: int) -> "TxnLog":
        return TxnLog(self.records[:end], end)


class CommitState(NamedTuple):
    """The broker, its disk, and the checker's knowledge."""

    txn_log: TxnLog = TxnLog()
    logs: tuple[ModelLog, ...] = (ModelLog(), ModelLog())
    transaction: int = 1
    phase: Phase = Phase.IDLE
    joined: frozenset[int] = frozenset()
    prepared_at: int = -1
    markers: tuple[tuple[int, int], ...] = ()
    """(partition, offset) of the markers written for the PREPARE of now."""
    power_failures: int = 0
    foreign_records: int = 0
    answered: tuple[tuple[int, TxnResult], ...] = ()
    shown: frozenset[tuple[int, int]] = frozenset()
    """(transaction, partition) of which readers have seen the commit."""
    sent: frozenset[tuple[int, int, int]] = frozenset()
    """(transaction, partition, how many records so far)."""

    def with_log(self, partition: int, log: ModelLog) -> "CommitState":
        logs = tuple(log if each == partition else self.logs[each] for each in PARTITIONS)
        return self._replace(logs=logs)


Step = tuple[str, CommitState]


class SearchResult(NamedTuple):
    """The end of a search: the anomaly with its story, or none, and the number of states."""

    anomaly: str | None
    story: tuple[str, ...]
    states: int


def search(rules: ModelRules, bounds: Bounds) -> SearchResult:
    """Look at every state within the bounds, nearest first, until one shows an anomaly."""
    first = CommitState()
    reached_by: dict[CommitState, Step | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for name, following in _steps(state, rules, bounds):
            if following in reached_by:
                continue
            reached_by[following] = (name, state)
            anomaly = anomaly_of(following)
            if anomaly is not None:
                return SearchResult(anomaly, _story(following, reached_by), len(reached_by))
            queue.append(following)
    return SearchResult(None, (), len(reached_by))


def anomaly_of(state: CommitState) -> str | None:
    """Name the anomalies, which may never happen.

    Required records are asked for once a start has ended.
    """
    committed = [log.committed() for log in state.logs]
    answered = dict(state.answered)
    if any(answered.get(number) is TxnResult.ABORT for counts in committed for number in counts):
        return "aborted-read"
    if state.phase is not Phase.FINISHING:
        return None
    if any(number not in committed[partition] for number, partition in state.shown):
        return "lso-regress"
    for number in {number for number, _, _ in state.sent}:
        sent = {
            partition: max(count for n, p, count in state.sent if (n, p) == (number, partition))
            for n, partition, _ in state.sent
            if n == number
        }
        is_whole = all(committed[p].get(number, 0) == count for p, count in sent.items())
        if answered.get(number) is TxnResult.COMMIT and not is_whole:
            return "lost-write"
        if any(number in committed[p] for p in sent) and not is_whole:
            return "torn-transaction"
    return None


def _steps(state: CommitState, rules: ModelRules, bounds: Bounds) -> Iterator[Step]:
    if state.phase is Phase.DECIDING:
        decided = state._replace(txn_log=state.txn_log.sync())
        yield "the start syncs its decision", _finish_start(decided, rules)
    elif state.phase is Phase.FINISHING:
        yield "the start serves", _served(state, rules)
    else:
        yield from _syncs(state)
        if state.foreign_records < bounds.foreign_records:
            log = state.logs[0].append(Foreign())
            counted = state._replace(foreign_records=state.foreign_records + 1)
            yield "another producer writes to 0", counted.with_log(0, log)
        if state.phase is Phase.PREPARED:
            yield from _end(state, rules)
        elif state.transaction <= bounds.transactions:
            yield from _write(state, rules)
    if state.power_failures < bounds.power_failures:
        yield from _power_failures(state, rules)


def _syncs(state: CommitState) -> Iterator[Step]:
    """Sync where something waits for it, or where a marker need no longer be carried.

    Any other sync only takes possible cuts away.
    """
    is_prepared = state.phase is Phase.PREPARED
    if is_prepared and state.txn_log.synced <= state.prepared_at:
        yield "sync PREPARE", state._replace(txn_log=state.txn_log.sync())
    for partition, log in enumerate(state.logs):
        ends_with_marker = log.end > 0 and isinstance(log.entries[-1], Marker)
        if log.synced < log.end and (is_prepared or ends_with_marker):
            yield f"sync {partition}", state.with_log(partition, log.sync())


def _write(state: CommitState, rules: ModelRules) -> Iterator[Step]:
    """Join a partition with a first record, send another record, or ask for the end."""
    number = state.transaction
    for partition in PARTITIONS:
        count = sum((n, p) == (number, partition) for n, p, _ in state.sent)
        if partition in state.joined and (partition != 0 or count == RECORDS_MAX):
            continue
        joined = state.joined | {partition}
        record = TxnRecord(is_prepare=False, carried=_carried(state, rules))
        written = state if partition in state.joined else _recorded(state, record)
        written = written._replace(
            phase=Phase.OPEN,
            joined=joined,
            markers=(),
            sent=state.sent | {(number, partition, count + 1)},
        )
        log = state.logs[partition].append(Data(number))
        yield f"{number} writes to {partition}", written.with_log(partition, log)
    if state.phase is Phase.OPEN:
        named = tuple((each, state.logs[each].end - 1) for each in sorted(state.joined))
        for result in TxnResult:
            prepare = TxnRecord(True, result, named, _carried(state, rules))
            prepared = _recorded(state, prepare)._replace(
                phase=Phase.PREPARED, prepared_at=len(state.txn_log.records), markers=()
            )
            yield f"PREPARE {result.value} of {number}", prepared


def _end(state: CommitState, rules: ModelRules) -> Iterator[Step]:
    """Answer, write a marker, or write COMPLETE, each as soon as the rules allow it."""
    number = state.transaction
    prepare = state.txn_log.records[state.prepared_at]
    assert prepare.result is not None
    result = prepare.result
    is_prepare_synced = not rules.waits_for_prepare or state.txn_log.synced > state.prepared_at
    is_data_synced = (
        result is TxnResult.ABORT
        or not rules.waits_for_data
        or all(state.logs[each].synced > offset for each, offset in prepare.named)
    )
    is_decided = is_prepare_synced and is_data_synced
    is_answered = (number, result) in state.answered
    if is_decided and not is_answered:
        answered = (*state.answered, (number, result))
        yield f"{result.value} of {number} is answered", state._replace(answered=answered)
    marked = {partition for partition, _ in state.markers}
    for partition in state.joined - marked if is_decided or result is TxnResult.ABORT else ():
        log = state.logs[partition]
        shown = {(number, partition)} if result is TxnResult.COMMIT else set()
        written = state._replace(
            markers=(*state.markers, (partition, log.end)), shown=state.shown | shown
        )
        marker = log.append(Marker(result))
        yield f"marker of {number} in {partition}", written.with_log(partition, marker)
    is_marked = marked == state.joined and (
        result is TxnResult.COMMIT
        or all(state.logs[each].synced > offset for each, offset in state.markers)
    )
    if is_answered and is_marked:
        complete = TxnRecord(is_prepare=False, carried=_carried(state, rules))
        yield f"COMPLETE of {number}", _next(_recorded(state, complete))


def _recorded(state: CommitState, record: TxnRecord) -> CommitState:
    return state._replace(txn_log=state.txn_log.append(record))


def _next(state: CommitState) -> CommitState:
    return state._replace(
        phase=Phase.IDLE,
        transaction=state.transaction + 1,
        joined=frozenset(),
        prepared_at=-1,
        markers=(),
    )


def _carried(state: CommitState, rules: ModelRules) -> tuple[Carried, ...]:
    """List the markers that are not known to be on the disk."""
    if not rules.carries_markers:
        return ()
    last = state.txn_log.last
    carried = list(last.carried)
    for partition, offset in state.markers:
        assert last.result is not None
        carried.append(Carried(partition, last.result, offset))
    return tuple(each for each in carried if state.logs[each.partition].synced <= each.offset)


def _power_failures(state: CommitState, rules: ModelRules) -> Iterator[Step]:
    """Cut every log in every way, and start again."""
    ends = [range(state.txn_log.synced, len(state.txn_log.records) + 1)]
    ends += [range(log.synced, log.end + 1) for log in state.logs]
    for txn_end, *log_ends in product(*ends):
        left = state._replace(
            txn_log=state.txn_log.cut(txn_end),
            logs=tuple(log.cut(end) for log, end in zip(state.logs, log_ends, strict=True)),
            power_failures=state.power_failures + 1,
            joined=frozenset(),
            prepared_at=-1,
            markers=(),
        )
        yield f"power failure leaves {txn_end} records and {log_ends}", _start(left, rules)


def _start(state: CommitState, rules: ModelRules) -> CommitState:
    """Decide on a PREPARE, rule b."""
    last = state.txn_log.last
    if (
        last.is_prepare
        and last.result is TxnResult.COMMIT
        and rules.looks_at_named_offsets
        and any(state.logs[each].end <= offset for each, offset in last.named)
    ):
        decided = _recorded(state, last._replace(result=TxnResult.ABORT))
        decided = decided._replace(phase=Phase.DECIDING)
        return decided if rules.start_syncs else _finish_start(decided, rules)
    return _finish_start(state, rules)


def _finish_start(state: CommitState, rules: ModelRules) -> CommitState:
    """Write the markers of rules a, b and c, and the record of rule d."""
    last = state.txn_log.last
    logs = list(state.logs)
    carried: list[Carried] = []

    def mark(partition: int, result: TxnResult, named_offset: int | None) -> None:
        begins_at = logs[partition].open_begins_at()
        if begins_at is None:
            return
        is_later = named_offset is not None and begins_at > named_offset
        if is_later and rules.looks_where_open_begins:
            return
        carried.append(Carried(partition, result, logs[partition].end))
        logs[partition] = logs[partition].append(Marker(result))

    for each in last.carried:
        mark(each.partition, each.result, each.offset - 1)
    if last.is_prepare:
        assert last.result is not None
        for partition, offset in last.named:
            mark(partition, last.result, offset)
    for partition in PARTITIONS:
        mark(partition, TxnResult.ABORT, None)
    kept = tuple(carried) if rules.start_carries_markers else ()
    record = TxnRecord(is_prepare=False, carried=kept)
    finished = _recorded(state, record)
    return finished._replace(logs=tuple(logs), phase=Phase.FINISHING)


def _served(state: CommitState, rules: ModelRules) -> CommitState:
    """Rule d: sync, then serve."""
    if rules.start_syncs:
        logs = tuple(log.sync() for log in state.logs)
        state = state._replace(txn_log=state.txn_log.sync(), logs=logs)
    return _next(state)


def _story(state: CommitState, reached_by: dict[CommitState, Step | None]) -> tuple[str, ...]:
    steps: list[str] = []
    step = reached_by[state]
    while step is not None:
        steps.append(step[0])
        step = reached_by[step[1]]
    return tuple(reversed(steps))


if __name__ == "__main__":
    finding = search(ModelRules(), Bounds(*map(int, sys.argv[1:])))
    print("\n".join(finding.story))
    print(f"{finding.anomaly or 'no anomaly'} in {finding.states} states")
    sys.exit(finding.anomaly is not None)
