"""The long version: each program of `examples/spark/` alone, with many kills, on any broker.

    python tests/spark/patterns/main.py                            # all of them on txn
    python tests/spark/patterns/main.py --broker kafka --strikes 12
    python tests/spark/patterns/main.py --broker secured windows   # over SASL_SSL
    python tests/spark/patterns/main.py --fault sparks-sink map_filter   # has to be found

Exit code 0: every record exactly once. The directory keeps logs and checkpoints.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import javaproperties

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harnesses.peers.secured import SecuredKafka, running
from spark.kill.harness import ApacheBroker, KillableBroker, TxnBroker
from spark.patterns.harness import Fault, PatternCase, kinds, told
from spark.patterns.oracle import PATTERNS
from spark.secured import scram_over_tls


@dataclass
class SecuredBroker:
    """An Apache Kafka; the harness comes by its plain listener, the programs do not.

    Its ports change with a restart, so it is not killed.
    """

    kafka: SecuredKafka

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.servers["PLAINTEXT"]

    def kill_and_restart(self) -> None:
        raise AssertionError("its ports would change")

    def stop(self) -> None:
        """The context of the node stops it."""


@dataclass
class Place:
    """A cluster, and the way in for the programs."""

    broker: KillableBroker
    config: Path | None = None
    servers: str | None = None


def main() -> int:
    arguments = _arguments()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="txn-patterns-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"logs and checkpoints: {directory}   seed: {arguments.seed}", flush=True)
    names = arguments.programs or list(PATTERNS)
    cases = [names] if arguments.together else [[name] for name in names]
    holds = []
    with _place(arguments.broker, directory) as place:
        there = TxnBroker(directory / "there")
        try:
            for programs in cases:
                began = time.monotonic()
                case = PatternCase(
                    programs,
                    place.broker,
                    directory,
                    there=there.bootstrap_servers,
                    config=place.config,
                    servers=place.servers,
                    fault=arguments.fault and Fault(arguments.fault),
                )
                is_ours = arguments.broker != "secured"
                strikes = kinds(arguments.strikes, arguments.seed, is_ours=is_ours)
                findings = case.run(strikes, arguments.seed)
                holds += [finding.holds for finding in findings]
                print(told(findings), f"  {case.starts} starts,", end=" ")
                print(f"{case.cpu_s:.0f} s of CPU, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            there.stop()
    return 0 if all(holds) else 1


@contextmanager
def _place(kind: str, directory: Path) -> Iterator[Place]:
    if kind == "secured":
        with running(directory / "secured") as kafka:
            options = scram_over_tls(kafka)
            servers = options.pop("kafka.bootstrap.servers")
            config = directory / "client.properties"
            named = {name.removeprefix("kafka."): value for name, value in options.items()}
            config.write_text(javaproperties.dumps(named))
            yield Place(SecuredBroker(kafka), config, servers)
        return
    broker = ApacheBroker(directory) if kind == "kafka" else TxnBroker(directory)
    try:
        yield Place(broker)
    finally:
        broker.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="[default: all]")
    parser.add_argument("--strikes", type=int, default=6, help="for each program")
    parser.add_argument("--broker", choices=("txn", "kafka", "secured"), default="txn")
    parser.add_argument("--together", action="store_true", help="as queries of one session")
    parser.add_argument("--fault", choices=[fault.value for fault in Fault], help="break a rule")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--directory", type=Path, help="where logs and checkpoints go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
