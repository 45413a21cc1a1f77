"""Histories in which the simulation found a promise broken, kept as plans."""

from sim.clients import Script, Transaction
from sim.plan import Fault, Plan
from sim.world import run_plan, text_of
from txn.broker.host import Durability

COMMIT = Transaction(((("sink", 0), 1),), "commit")


def test_P2_the_first_commit_of_a_broker_survives_a_power_failure() -> None:
    """`__transaction_state` is made when the first transactional id comes.

    Its topic was written to the metadata log and not forced to the disk, while PREPARE was. A
    power failure then left a PREPARE in a topic that nobody knew of: the committed transaction was
    aborted as an orphan, and the next transactional id met a directory of another topic.
    """
    plan = Plan(
        seed=1,
        durability=Durability.COMMIT,
        scripts=(
            Script("before", "tv1", "pay", start_us=0, transactions=(COMMIT,)),
            Script("after", "tv1", "pay", start_us=1_000_000, transactions=(COMMIT,)),
        ),
        faults=(Fault("power", at_us=500_000, bias="all"),),
        network=(),
    )
    result = run_plan(plan)
    assert not result.anomalies, text_of(result)
    assert result.committed == 2
