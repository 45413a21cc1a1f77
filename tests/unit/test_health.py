"""Probes of a control loop."""

from collections.abc import Callable

from txn.server.metrics.health import LoopProbe

Call = Callable[[], object]


def test_a_loop_that_makes_its_calls_owes_none() -> None:
    probe = LoopProbe(lambda call: call(), clock=lambda: 5.0)
    assert probe.waiting_s() == 0
    assert probe.waiting_s() == 0


def test_a_loop_that_makes_no_call_owes_it_since_the_first_probe() -> None:
    now = [5.0]
    calls: list[Call] = []
    probe = LoopProbe(calls.append, clock=lambda: now[0])
    assert probe.waiting_s(0) == 0
    now[0] = 12.0
    assert probe.waiting_s(0) == 7
    assert len(calls) == 1, "a loop that is stuck is not given more to do"


def test_a_loop_that_turns_again_is_asked_anew() -> None:
    now = [5.0]
    calls: list[Call] = []
    probe = LoopProbe(calls.append, clock=lambda: now[0])
    probe.waiting_s(0)
    now[0] = 12.0
    calls[0]()
    assert probe.waiting_s(0) == 0
    assert len(calls) == 2
