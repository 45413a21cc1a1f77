"""The long version: many kills per job, and a table of the results.

    python tests/spark/kill/main.py --kills 12 --job all            # txn's own broker
    python tests/spark/kill/main.py --kills 12 --job map --peer     # Apache Kafka
    python tests/spark/kill/main.py --job dedup --bootstrap HOST:PORT   # no broker kills
    python tests/spark/kill/main.py --kills 12 --standalone         # driver and executors apart

Exit code 0: every row exactly once. The directory keeps logs and checkpoints.
"""

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spark.kill.harness import (
    ApacheBroker,
    KillableBroker,
    KillCase,
    Moment,
    RowComparison,
    RunningBroker,
    TxnBroker,
)
from spark.processes import StandaloneCluster

JOBS = ("map", "dedup", "update")
ROWS_PER_KILL = 4_000
"""Enough batches that every kill finds the job at work."""


def main() -> int:
    arguments = _arguments()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="txn-kill-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"logs and checkpoints: {directory}   seed: {arguments.seed}")
    jobs = JOBS if arguments.job == "all" else (arguments.job,)
    verdicts = []
    with ExitStack() as running:
        broker = _broker(arguments, directory)
        running.callback(broker.stop)
        cluster = None
        if arguments.standalone:
            cluster = running.enter_context(StandaloneCluster(directory))
        for job in jobs:
            rows = ROWS_PER_KILL * arguments.kills + 8_000
            rows = rows // (2 if job == "update" else 1)
            case = KillCase(job, broker, directory, rows=rows, cluster=cluster)
            verdicts.append(case.run(_plan(arguments), arguments.seed))
            _print(verdicts[-1])
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _plan(arguments: argparse.Namespace) -> list[Moment]:
    """Every kind of moment about as often, in a random order."""
    kinds = list(Moment)
    if arguments.bootstrap:
        kinds.remove(Moment.BROKER)
    kinds.remove(Moment.WORKER if arguments.standalone else Moment.NODE)
    plan = [kinds[number % len(kinds)] for number in range(arguments.kills)]
    random.Random(arguments.seed).shuffle(plan)
    return plan


def _print(verdict: RowComparison) -> None:
    kills = ", ".join(f"{count} {name}" for name, count in sorted(verdict.kills.items()))
    print(
        f"{verdict.job:7} {'exactly once' if verdict.holds else 'WRONG':12} "
        f"expected {verdict.expected} found {verdict.found} missing {verdict.missing} "
        f"extra {verdict.extra} held back {verdict.held_back}   "
        f"{verdict.kills.total()} kills ({kills}), {verdict.starts} starts, "
        f"{verdict.seconds:.0f} s",
        flush=True,
    )


def _broker(arguments: argparse.Namespace, directory: Path) -> KillableBroker:
    if arguments.bootstrap:
        return RunningBroker(arguments.bootstrap)
    return ApacheBroker(directory) if arguments.peer else TxnBroker(directory)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=12, help="per job")
    parser.add_argument("--job", default="all", choices=(*JOBS, "all"))
    parser.add_argument("--bootstrap", help="a cluster that runs; it is not killed")
    parser.add_argument("--peer", action="store_true", help="start Apache Kafka")
    parser.add_argument("--standalone", action="store_true", help="executors on a Spark cluster")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--directory", type=Path, help="where logs and checkpoints go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
