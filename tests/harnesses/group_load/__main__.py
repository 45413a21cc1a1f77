"""The command line of the load; exit code 1 if an assignment is wrong, a group stuck, memory grows.

python -m harnesses.group_load --seconds 600 --target txn --target kafka
"""

import argparse
import asyncio
import resource
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil

from harnesses.group_load.churn import Load, Report, Sizes
from harnesses.group_load.members import KINDS, SESSION_MS
from harnesses.peers.kafka import WRITES_IDLE_RECORDS, KafkaNode
from support.brokers import BrokerProcess

MIB: Final = 1 << 20
GROWTH_MAX: Final = 1.15
GROWTH_BYTES: Final = 48 * MIB
"""Memory that grows less from the first third to the end is flat."""

SETTINGS: Final = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": str(64 * MIB),
    "log.retention.check.interval.ms": "5000",
}


def main() -> int:
    """Run each protocol on each broker; print a row for each."""
    options = _parser().parse_args()
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    sizes = Sizes(options.connections, options.groups, options.topics, options.megabytes)
    print(f"{'':18}{Report.HEADER}", flush=True)
    is_wrong = False
    for target in options.target or ["txn", "kafka"]:
        for protocol in options.protocol or KINDS:
            report = _run(target, protocol, sizes, options.seconds, options.seed)
            print(f"{target + ' ' + protocol:18}{report.row()}", flush=True)
            problems = report.problems
            if target == "txn" and report.rss_end > GROWTH_MAX * report.rss_third + GROWTH_BYTES:
                problems.append("the memory of the broker grows")
            for problem in problems[:20]:
                print(f"  {problem}", flush=True)
            is_wrong = is_wrong or bool(problems)
    return int(is_wrong)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="group_load")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each protocol (60)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--target", action="append", choices=("txn", "kafka"))
    parser.add_argument("--protocol", action="append", choices=tuple(KINDS))
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--groups", type=int, default=200, help="of ten members each")
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--megabytes", type=float, default=20.0, help="produced a second beside")
    return parser


def _run(target: str, protocol: str, sizes: Sizes, seconds: float, seed: int) -> Report:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="group-load-")))
        if target == "kafka":
            node = stack.enter_context(
                KafkaNode(place / "kafka", {**WRITES_IDLE_RECORDS, **SETTINGS}, heap="1g")
            )
            servers, pid = node.bootstrap_servers, node.pid
        else:
            options = [f"{name}={value}" for name, value in SETTINGS.items()]
            broker = BrokerProcess(place / "data", *options)
            stack.callback(broker.stop)
            servers, pid = broker.bootstrap_servers, broker.pid
        load = Load(servers, protocol, psutil.Process(pid), sizes, seed)
        return asyncio.run(load.run(seconds))


if __name__ == "__main__":
    sys.exit(main())
