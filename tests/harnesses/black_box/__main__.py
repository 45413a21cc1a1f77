"""The command line of the black box; exit code 1 if anything was found."""

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harnesses.black_box import broken, nemesis
from harnesses.black_box.run import BlackBoxResult, RunPlan, run
from harnesses.black_box.workload import roles

SHOWN_MAX = 30


def main() -> int:
    """Run once and print the findings."""
    options = _parser().parse_args()
    over = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    plan = RunPlan(
        seconds=options.seconds,
        seed=options.seed,
        target=options.target,
        durability=options.durability,
        rules=_rules(options),
        faults=_faults(options),
        roles=roles(
            plain=0 if "power" in options.faults else options.plain,
            writers=options.writers,
            copiers=0 if options.target == "mock" else options.copiers,  # it keeps no offsets
            java=options.java,
            java_tv1=options.older_java,
            native=0 if options.target == "mock" else options.native,
        ),
    )
    directory = Path(tempfile.mkdtemp(prefix="black-box-"))
    print(f"seed {plan.seed}, data and notes in {directory}", file=sys.stderr, flush=True)
    verdict = run(plan, directory, over=over, tell=_teller())
    _show(verdict, is_json=options.json)
    return 1 if verdict.anomalies else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="black_box", description="Check a broker through real clients while it is harmed."
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 16))
    parser.add_argument("--target", choices=("txn", "kafka", "mock"), default="txn")
    parser.add_argument("--durability", choices=("process", "commit", "always"), default="process")
    parser.add_argument(
        "--faults",
        nargs="*",
        choices=nemesis.FAULTS,
        default=list(nemesis.DEFAULT),
        help="; ".join(f"{fault}: {what}" for fault, what in nemesis.FAULTS.items()),
    )
    parser.add_argument(
        "--break", nargs="*", choices=broken.RULES, default=[], dest="rules", help="rules of txn"
    )
    parser.add_argument("--plain", type=int, default=1, help="idempotent producers")
    parser.add_argument("--writers", type=int, default=2, help="librdkafka, version 1")
    parser.add_argument("--copiers", type=int, default=2, help="librdkafka, for each stage")
    parser.add_argument("--java", type=int, default=2, help="Java 4.2 clients, version 2")
    parser.add_argument("--older-java", type=int, default=0, help="Java 3.9 clients, version 1")
    parser.add_argument("--native", type=int, default=4, help="txn's native clients, version 2")
    parser.add_argument("--json", action="store_true", help="the verdict as JSON")
    return parser


def _faults(options: argparse.Namespace) -> list[str]:
    """The faults asked for, as far as the target can be harmed so."""
    if options.target == "mock":
        return [f for f in options.faults if f in ("stop-client", "kill-client", "takeover")]
    return list(options.faults)


def _rules(options: argparse.Namespace) -> list[str]:
    rules = list(options.rules)
    if "power" in options.faults and broken.POWER not in rules:
        rules.append(broken.POWER)
    return rules


def _teller() -> Callable[[str], None]:
    """A printer of lines of progress; of those that come often it prints one every ten seconds."""
    began_s = time.monotonic()
    last = [0.0]

    def tell(line: str) -> None:
        if not line[0].isdigit() or time.monotonic() - last[0] > 10:
            last[0] = time.monotonic()
            print(f"{time.monotonic() - began_s:6.1f} s  {line}", file=sys.stderr, flush=True)

    return tell


def _show(verdict: BlackBoxResult, *, is_json: bool) -> None:
    if is_json:
        found = [
            {"name": a.name, "story": a.story, "evidence": a.evidence} for a in verdict.anomalies
        ]
        json.dump(verdict.figures() | {"found": found}, sys.stdout, indent=2, default=str)
        print()
        return
    for name, value in verdict.figures().items():
        print(f"{name}: {value}")
    print(*verdict.anomalies[:SHOWN_MAX], sep="\n")
    left = len(verdict.anomalies) - SHOWN_MAX
    print(f"{len(verdict.anomalies)} anomalies" + (f", {left} not shown" if left > 0 else ""))


if __name__ == "__main__":
    sys.exit(main())
