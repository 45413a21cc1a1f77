"""`txn` with rules broken on purpose: the negative controls.

    python -m black_box.broken RULE[,RULE…] serve …

A fault that a checker misses here, it would miss in txn. The rules are those of the product's own
Python, replaced in this process before it serves; nothing in the product knows of it. `POWER`
breaks nothing: it only lets the power fail (`black_box.power`).
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from black_box.power import note_syncs
from txn.broker import txn_coordinator
from txn.broker.local_host import LocalHost
from txn.coordinator.operations import Committed, Remote, Request
from txn.coordinator.transaction import ending
from txn.coordinator.transaction.connections import LatestConnections
from txn.partition import admission, producer_state_manager
from txn.partition.stable_offset import OpenTransactions

POWER: Final = "power"


def _put(module: ModuleType | type, name: str, rule: object) -> None:
    """Replace a rule where a module uses it."""
    assert hasattr(module, name), f"{module.__name__} has no {name}: the rule has moved"
    setattr(module, name, rule)


class _UpToTheNewestMarker(OpenTransactions):
    """Takes every transaction for ended when one has ended."""

    __slots__ = ()

    def end(self, producer_id: int) -> None:
        self._first_offsets.clear()
        self.first_offset = -1


def follow_newest_marker() -> None:
    """The LSO goes to the newest marker, past transactions that are open."""
    _put(producer_state_manager, "OpenTransactions", _UpToTheNewestMarker)


def ignore_epochs() -> None:
    """Nobody is fenced: neither the coordinator nor a partition looks at producer epochs."""
    for name in ("decide_add", "decide_verify", "decide_end"):
        _put(txn_coordinator, name, _with_the_epoch_in_force(getattr(txn_coordinator, name)))
    rule = admission.refusal

    def refusal(state: Any, origin: int, producer_epoch: int, *rest: Any) -> Any:
        is_transactional, expected_epoch = rest[-2:]
        if state is None or producer_epoch >= state.producer_epoch or not is_transactional:
            return rule(state, origin, producer_epoch, *rest)
        return None if expected_epoch is not None else admission.JOIN

    _put(producer_state_manager, "refusal", refusal)


def _with_the_epoch_in_force(rule: Callable[..., Any]) -> Callable[..., Any]:
    def decide(txn: Any, producer: Any, *rest: Any, **more: Any) -> Any:
        if txn is not None and txn.producer_id == producer.producer_id:
            producer = producer._replace(producer_epoch=txn.producer_epoch)
        return rule(txn, producer, *rest, **more)

    return decide


def forget_batches() -> None:
    """A dedup window of zero: no batch is remembered, so each is taken for the next one."""
    rule = admission.refusal
    misses = (admission.ADMIT, admission.DUPLICATE)

    def refusal(*arguments: Any) -> Any:
        verdict = rule(*arguments)
        if verdict is not None and verdict[0] in misses:
            return None
        return None if verdict is admission.OUT_OF_ORDER_SEQUENCE else verdict

    _put(producer_state_manager, "refusal", refusal)


def serve_late_requests() -> None:
    """A request that a TV1 client left on a connection is served as if it had just been sent."""
    _put(LatestConnections, "is_superseded", lambda *_: False)


def mark_before_prepare() -> None:
    """Markers are written, and seen, before the Prepare that decides them is on the disk."""
    finish = ending.finish

    def leave_undecided(_: Any) -> Request[None]:
        yield from ()

    def mark_and_finish(transactional_id: str, end: Any, write_markers: Any, *rest: Any) -> Any:
        marked = yield Remote(lambda: write_markers(end))
        end.unmarked = frozenset(marked.refused)
        return (yield from finish(transactional_id, end, write_markers, *rest))

    _put(txn_coordinator, "decide", leave_undecided)
    _put(txn_coordinator, "finish", mark_and_finish)


def believe_every_prepare() -> None:
    """A start finishes each commit that is prepared, even where records that it names are lost."""
    _put(txn_coordinator, "is_to_decide", lambda _: False)


def forget_a_partition() -> None:
    """A commit is decided and answered while one partition's records are not on the disk."""
    _put(ending, "Committed", lambda partitions: Committed(sorted(partitions)[:-1]))


def recover_without_syncs() -> None:
    """A start takes the contents of the logs for the state of the disk."""
    _put(LocalHost, "sync_now", lambda *_: None)


RULES: Final[dict[str, Callable[[], None]]] = {
    "lso-newest-marker": follow_newest_marker,
    "no-epoch-check": ignore_epochs,
    "no-dedup": forget_batches,
    "late-requests": serve_late_requests,
    "marker-before-prepare": mark_before_prepare,
    "believed-prepare": believe_every_prepare,
    "unsynced-partition": forget_a_partition,
    "unsynced-recovery": recover_without_syncs,
    POWER: note_syncs,
}


def main() -> None:
    """Break the rules, then be `txn`."""
    for rule in sys.argv.pop(1).split(","):
        RULES[rule]()
    from txn.cli import main as txn_main

    txn_main()


if __name__ == "__main__":
    main()
