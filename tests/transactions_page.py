"""The tables of `docs/concepts/transactions.md`, made by asking the rules themselves.

Every request is put to `coordinator.transaction.decide` in every state, and the page shows the
answers. `python tests/transactions_page.py` writes them into the page.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from txn.coordinator.transaction.decide import (
    TV1,
    TV2,
    AbortFirst,
    Done,
    End,
    Refuse,
    Write,
    complete,
    decide_add,
    decide_end,
    decide_end_and_bump,
    decide_fence,
    decide_init,
    decide_verify,
)
from txn.coordinator.transaction.recovery_decisions import decide_after_power_failure, decide_undo
from txn.coordinator.transaction.states import MOVES, PREPARED, Txn, TxnResult, TxnState
from txn.coordinator.transaction.timeouts import is_expired, is_timed_out
from txn.identifiers import ProducerIdAndEpoch
from txn.storage.base import BatchKind, Marker
from txn.testing import MemoryLog

PAGE: Final = Path(__file__).parent.parent / "docs" / "concepts" / "transactions.md"

NOW_MS: Final = 10_000_000
TIMEOUT_MS: Final = 60_000
EXPIRATION_MS: Final = 1_000_000
NOW: Final = ProducerIdAndEpoch(7, 5)
"""The producer id and epoch in use."""
BEFORE_END: Final = ProducerIdAndEpoch(7, 4)
"""Those with which a TV2 client ended the transaction before."""
EARLIER: Final = ProducerIdAndEpoch(7, 3)
JOINED: Final = ("orders", 0)
JOINING: Final = ("orders", 1)

STATES: Final = (
    TxnState.DEAD,
    TxnState.EMPTY,
    TxnState.ONGOING,
    TxnState.PREPARE_COMMIT,
    TxnState.PREPARE_ABORT,
    TxnState.COMPLETE_COMMIT,
    TxnState.COMPLETE_ABORT,
)

MEANINGS: Final[Mapping[TxnState, str]] = {
    TxnState.DEAD: "nothing is known of the id: never used, or forgotten by a tombstone",
    TxnState.EMPTY: "a producer has an id and an epoch; no transaction yet",
    TxnState.ONGOING: "a transaction is open, on the partitions that are listed",
    TxnState.PREPARE_COMMIT: "it **is** committed once this and its records are on the disk; "
    "markers are being written",
    TxnState.PREPARE_ABORT: "it **is** aborted; markers are being written",
    TxnState.COMPLETE_COMMIT: "every partition has its commit marker",
    TxnState.COMPLETE_ABORT: "every partition has its abort marker",
    TxnState.PREPARE_EPOCH_FENCE: "a step inside Kafka's coordinator, never stored",
}

Answer = Refuse | Done | Write | End | AbortFirst
Ask = Callable[[Txn | None], "Answer | None"]
"""The next state of an id; None where the event cannot come to it."""


def _end(outcome: TxnResult, producer: ProducerIdAndEpoch) -> Ask:
    return lambda txn: decide_end(txn, producer, outcome, now_ms=NOW_MS)


def _end_and_bump(outcome: TxnResult, producer: ProducerIdAndEpoch) -> Ask:
    return lambda txn: decide_end_and_bump(
        txn, producer, outcome, now_ms=NOW_MS, new_producer_id=_new_id
    )


def _init(shown: ProducerIdAndEpoch | None, *, keep_prepared: bool = False) -> Ask:
    return lambda txn: decide_init(
        txn,
        shown,
        timeout_ms=TIMEOUT_MS,
        now_ms=NOW_MS,
        new_producer_id=_new_id,
        keep_prepared=keep_prepared,
    )


def _add(txn: Txn | None) -> Answer:
    return decide_add(txn, NOW, [JOINING], client_version=TV2, now_ms=NOW_MS)


def _verify(txn: Txn | None) -> Answer:
    return decide_verify(txn, NOW, JOINED)


def _marked(txn: Txn | None) -> Answer | None:
    if txn is None or txn.state not in PREPARED:
        return None
    return Write(complete(txn, now_ms=NOW_MS))


def _timed_out(txn: Txn | None) -> Answer | None:
    if txn is None or not is_timed_out(txn, txn.start_ms, NOW_MS):
        return None
    return decide_fence(txn, now_ms=NOW_MS, new_producer_id=_new_id)


def _unsynced(txn: Txn | None) -> Answer | None:
    if txn is None or txn.state is not TxnState.PREPARE_COMMIT:
        return None
    return Write(decide_undo(txn, now_ms=NOW_MS))


def _power_failed(txn: Txn | None) -> Answer | None:
    if txn is None or txn.state in PREPARED:
        return None
    return Write(
        decide_after_power_failure(txn, is_behind=False, now_ms=NOW_MS, new_producer_id=_new_id)
    )


def _new_id() -> int:
    return 8


COMMIT, ABORT = TxnResult.COMMIT, TxnResult.ABORT

EVENTS: Final[tuple[tuple[str, str, Ask], ...]] = (
    ("InitProducerId, of a new producer", "InitProducerId", _init(None)),
    ("InitProducerId, with the current epoch (KIP-360)", "InitProducerId", _init(NOW)),
    (
        "InitProducerId, with the epoch before the end (KIP-360)",
        "InitProducerId",
        _init(BEFORE_END),
    ),
    (
        "InitProducerId that keeps a prepared transaction (KIP-939)",
        "InitProducerId",
        _init(None, keep_prepared=True),
    ),
    ("AddPartitionsToTxn, or a TV2 client's first batch or offsets", "a partition joins", _add),
    ("a TV1 client's batch, on a partition that joined", "", _verify),
    ("EndTxn v0–4: commit", "EndTxn commit", _end(COMMIT, NOW)),
    ("EndTxn v0–4: abort", "EndTxn abort", _end(ABORT, NOW)),
    ("EndTxn v5: commit", "EndTxn commit", _end_and_bump(COMMIT, NOW)),
    ("EndTxn v5: abort", "EndTxn abort", _end_and_bump(ABORT, NOW)),
    (
        "EndTxn v5: commit, with the epoch before the end",
        "EndTxn commit",
        _end_and_bump(COMMIT, BEFORE_END),
    ),
    (
        "EndTxn v5: abort, with the epoch before the end",
        "EndTxn abort",
        _end_and_bump(ABORT, BEFORE_END),
    ),
    ("anything with an earlier epoch", "", _end(COMMIT, EARLIER)),
    ("its timeout has passed", "timeout", _timed_out),
    ("every partition has its marker", "markers written", _marked),
    ("its records are not on the disk, and cannot be", "data lost", _unsynced),
    ("a start after a power failure", "power failure", _power_failed),
)
"""The request or event; its name in the table of moves; the next state of an id."""

EXPIRY: Final = "unused for `transactional.id.expiration.ms`"


def txn_in(state: TxnState, client_version: int = TV2) -> Txn | None:
    """An id in a state; a TV2 client ended its last transaction with the epoch before."""
    if state is TxnState.DEAD:
        return None
    has_partitions = state is TxnState.ONGOING or state in PREPARED
    return Txn(
        producer_id=NOW.producer_id,
        producer_epoch=NOW.producer_epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=frozenset({JOINED}) if has_partitions else frozenset(),
        start_ms=0,
        updated_ms=0,
        client_version=client_version,
    )


def _after(answer: Write | End | AbortFirst) -> Txn:
    if isinstance(answer, Write):
        return answer.txn
    return answer.end.prepare if isinstance(answer, AbortFirst) else answer.prepare


def moves_made() -> dict[tuple[TxnState, TxnState], list[str]]:
    """Every move that some event makes, with the names of those that make it."""
    made: dict[tuple[TxnState, TxnState], list[str]] = {}

    def note(before: TxnState, after: TxnState, name: str) -> None:
        names = made.setdefault((before, after), [])
        if name not in names:
            names.append(name)

    for state in STATES:
        for version in (TV1, TV2):
            txn = txn_in(state, version)
            for _, name, ask in EVENTS:
                answer = ask(txn)
                if isinstance(answer, Write | End | AbortFirst):
                    note(state, _after(answer).state, name)
            if txn is not None and is_expired(txn, NOW_MS, EXPIRATION_MS):
                note(state, TxnState.DEAD, "unused for long")
    return made


# ---------------------------------------------------------------- what the page shows


def states_table() -> Iterator[str]:
    """The states, the byte that is stored for each, and the states that may be written next."""
    yield "| stored as | state | meaning | states that may be written next |"
    yield "|---|---|---|---|"
    for state in TxnState:
        following = ", ".join(after.label for after in sorted(MOVES[state])) or "–"
        is_stored = state not in (TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE)
        number = str(int(state)) if is_stored else "–"
        yield f"| {number} | {state.label} | {MEANINGS[state]} | {following} |"


def moves_table() -> Iterator[str]:
    """The moves, and what makes each; a state is named in the row of its first move."""
    yield "| from | to | by |"
    yield "|---|---|---|"
    yield f"| a new id | {TxnState.DEAD.label} | |"
    named = None
    for (before, after), names in sorted(moves_made().items()):
        origin = before.label if before is not named else ""
        yield f"| {origin} | {after.label} | {', '.join(names)} |"
        named = before


def answers_table() -> Iterator[str]:
    """The result of every request in every state."""
    yield "| | " + " | ".join(state.label for state in STATES) + " |"
    yield "|---" * (len(STATES) + 1) + "|"
    for event, _, ask in EVENTS:
        cells = (_cell(ask(txn_in(state))) for state in STATES)
        yield f"| {event} | {' | '.join(cells)} |"
    expiring = (_expiry_cell(state) for state in STATES)
    yield f"| {EXPIRY} | {' | '.join(expiring)} |"


def _cell(answer: Answer | None) -> str:
    if answer is None:
        return "–"
    if isinstance(answer, Refuse):
        return f"`{answer.code.name}`"
    if isinstance(answer, Done):
        return "as before: done"
    after = _after(answer)
    epoch = after.producer_epoch - NOW.producer_epoch
    bump = f", epoch +{epoch}" if epoch > 0 and after.producer_id == NOW.producer_id else ""
    text = f"**{after.state.label}**{bump}"
    return f"{text}, then asked again" if isinstance(answer, AbortFirst) else text


def _expiry_cell(state: TxnState) -> str:
    txn = txn_in(state)
    if txn is None or not is_expired(txn, NOW_MS, EXPIRATION_MS):
        return "–"
    return f"**{TxnState.DEAD.label}**"


ANN: Final = ProducerIdAndEpoch(1, 0)
BOB: Final = ProducerIdAndEpoch(2, 0)
STORY: Final[tuple[tuple[str, str, ProducerIdAndEpoch | None, bool | None], ...]] = (
    ("ann writes a1", "a1", ANN, None),
    ("bob writes b1", "b1", BOB, None),
    ("cat writes c1, without a transaction", "c1", None, None),
    ("bob commits", "✓b", BOB, True),
    ("ann writes a2", "a2", ANN, None),
    ("ann aborts", "✗a", ANN, False),
    ("bob writes b2", "b2", BOB, None),
    ("cat writes c2", "c2", None, None),
    ("bob commits", "✓b", BOB, True),
)
"""An event, the name of its record or marker, its producer; True for a commit, False: an abort."""


def read_committed(log: MemoryLog) -> Iterator[str]:
    """The records of a reader, by the answer to its fetch: an end, and aborted transactions."""
    end = log.last_stable_offset
    aborted = log.producer_state.aborted_in(0, end)
    dropped: set[int] = set()
    for batch in log.batches():
        dropped |= {producer_id for producer_id, first in aborted if first == batch.base_offset}
        if batch.kind is BatchKind.ABORT_MARKER:
            dropped.discard(batch.producer_id)
        is_dropped = batch.kind is BatchKind.TRANSACTIONAL and batch.producer_id in dropped
        if batch.base_offset < end and not is_dropped:
            yield from ((record.value or b"").decode() for record in batch.records)


def picture() -> Iterator[str]:
    """A log of one partition after each event, as its rules make it."""
    log = MemoryLog("orders", 0)
    names: list[str] = []
    yield "```text"
    for time_ms, (event, name, producer, is_commit) in enumerate(STORY, 1):
        if producer is None or is_commit is None:
            given = {} if producer is None else {"producer": producer}
            log.append([(None, name.encode())], timestamp_ms=time_ms, **given)
        else:
            log.append_marker(Marker(producer.producer_id, 0, 0, is_commit, time_ms))
        names.append(name)
        cells = [*names, ""]
        cells[log.last_stable_offset] = f"|{cells[log.last_stable_offset]}"
        seen = ", ".join(read_committed(log)) or "nothing"
        drawn = "".join(f"{cell:>4}" for cell in cells)
        yield f"{event:<38}{drawn:<42}  sees {seen}"
    yield "```"


SECTIONS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "picture": picture,
    "states": states_table,
    "moves": moves_table,
    "answers": answers_table,
}


def page_with_tables(page: str) -> str:
    """The page with its tables made anew; they stand between comments that name them."""
    for name, make in SECTIONS.items():
        begin, end = f"<!-- {name}: made from the rules -->\n", f"<!-- end of {name} -->"
        head, found_begin, rest = page.partition(begin)
        _, found_end, tail = rest.partition(end)
        assert "" not in (found_begin, found_end), f"{PAGE.name} has no place for {name}"
        page = head + begin + "\n" + "\n".join(make()) + "\n\n" + end + tail
    return page


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text()))
