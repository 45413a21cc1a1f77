"""Every moment of a commit at which a broker can stop, one after the other (P1 to P9).

The list of moments is not made by hand. A run in which nothing fails is watched, and every boundary
between two operations on the disk that its broker met is one. Then the same run is made once for
each of them. It is stopped there, as a killed process and as a machine that loses power with or
without the unsynced data, started again, and judged. The next start is stopped, too, at each
boundary of the recovery of one of them.

`make test` plays one moment in 24, `make proofs` each of them.
"""

from dataclasses import replace

import pytest

from sim.clients import Script, ScriptedTransaction
from sim.disk import Place
from sim.plan import FROM_THE_START, PlannedFault, SimPlan
from sim.world import World, run_plan, text_of
from support.samples import sampled
from txn.broker.host import Durability

WRITES = ((("source", 0), 2), (("source", 1), 1), (("sink", 0), 1))
BEFORE = ScriptedTransaction(WRITES, "abort")
COMMIT = ScriptedTransaction(WRITES, "commit")


def plan_of(version: int, durability: Durability) -> SimPlan:
    """An aborted and a committed transaction, then a copier that commits output and offsets."""
    writer = Script(f"tv{version}-0", f"tv{version}", "pay", 0, (BEFORE, COMMIT, COMMIT))
    rounds = (ScriptedTransaction((), "commit"),) * 2
    copier = Script(f"copy{version}-0", f"copy{version}", "copy-0", 400_000, rounds, 5_000)
    return SimPlan(version, durability, (writer, copier), (), ())


def boundaries_of(plan: SimPlan) -> list[tuple[str, Place]]:
    """The broker's operations on the disk from its start to the end, a boundary for each."""
    world = World(plan)
    world.records_operations = True
    result = world.run()
    assert not result.anomalies, text_of(result)
    assert world.broker is not None
    assert world.broker.trace is not None
    return world.broker.trace


def stop_at_each(plan: SimPlan, boundaries: list[tuple[str, Place]], kind: str, bias: str) -> None:
    """Play the plan once for each boundary, with a stop there; AssertionError tells the first."""
    broken = []
    for number, boundary in sampled(tuple(enumerate(boundaries, 1)), first=plan.seed):
        fault = PlannedFault(kind, FROM_THE_START, operations=number, down_us=1_000, bias=bias)
        result = run_plan(replace(plan, faults=(fault,)))
        if result.anomalies:
            broken.append((boundary, fault, result))
    assert not broken, f"{len(broken)} stops; {broken[0][:2]}: {text_of(broken[0][2])}"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("durability", "kind", "bias"),
    [
        (Durability.PROCESS, "crash", "none"),
        (Durability.COMMIT, "power", "all"),
        (Durability.COMMIT, "power", "none"),
    ],
)
def test_a_stop_at_any_boundary_of_a_commit_keeps_every_promise(
    version: int, durability: Durability, kind: str, bias: str
) -> None:
    plan = plan_of(version, durability)
    boundaries = boundaries_of(plan)
    assert {"write", "written"} <= {operation for operation, _ in boundaries}
    stop_at_each(plan, boundaries, kind, bias)


@pytest.mark.parametrize(
    ("durability", "kind", "bias"),
    [
        (Durability.PROCESS, "crash", "none"),
        (Durability.COMMIT, "crash", "none"),
        (Durability.COMMIT, "power", "all"),
        (Durability.COMMIT, "power", "any"),
    ],
)
def test_a_stop_at_any_boundary_of_a_two_phase_commit_keeps_every_promise(
    durability: Durability, kind: str, bias: str
) -> None:
    """One instance writes, has it decided elsewhere and dies; the next commits the open
    transaction.
    """
    ends = ("commit", "decided", "abort", "restart", "decided")
    steps = tuple(ScriptedTransaction(WRITES, end) for end in ends)
    plan = SimPlan(1, durability, (Script("db-0", "db", "db", 0, steps, comes_back=True),), (), ())
    boundaries = boundaries_of(plan)
    assert len(boundaries) > 50
    stop_at_each(plan, boundaries, kind, bias)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("kind", "bias"), [("crash", "none"), ("power", "all"), ("power", "any")])
def test_a_stop_at_any_boundary_of_a_hand_over_to_two_phase_commit_keeps_every_promise(
    version: int, kind: str, bias: str
) -> None:
    """An ordinary instance leaves a transaction open; the next has it decided elsewhere."""
    steps = (COMMIT, ScriptedTransaction(WRITES, "decided", left="written"), COMMIT)
    script = Script(f"up{version}", f"up{version}", "pay", 0, steps, comes_back=True)
    plan = SimPlan(version, Durability.COMMIT, (script,), (), ())
    boundaries = boundaries_of(plan)
    assert len(boundaries) > 50
    stop_at_each(plan, boundaries, kind, bias)


@pytest.mark.parametrize(("version", "kind"), [(1, "crash"), (2, "power")])
def test_a_stop_at_any_boundary_of_a_recovery_keeps_every_promise(version: int, kind: str) -> None:
    """The first stop is where most is to be recovered: behind each PREPARE and its sync."""
    plan = plan_of(version, Durability.COMMIT)
    boundaries = boundaries_of(plan)
    prepared = [
        number
        for number, (operation, place) in enumerate(boundaries, 1)
        if operation in ("written", "synced") and place[0] == "__transaction_state"
    ]
    broken = []
    for number in prepared:
        for in_recovery in sampled(range(1, 12), first=version):
            fault = PlannedFault(kind, FROM_THE_START, number, 1_000, in_recovery, bias="all")
            result = run_plan(replace(plan, faults=(fault,)))
            if result.anomalies:
                broken.append((boundaries[number - 1], fault, result))
    assert prepared
    assert not broken, f"{broken[0][:2]}: {text_of(broken[0][2])}"
