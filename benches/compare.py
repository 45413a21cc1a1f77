"""txn beside a real Apache Kafka, in turns, in one run: `make bench`.

    python -m benches.compare [--quick] [--case NAME]... [--rounds 5] [--json FILE]
                              [--alone | --against CHECKOUT]

The peer is Apache Kafka 4.4.0; `KAFKA_VERSION=4.2.0` in the environment makes it the older one. It
may be another commit of txn instead: a checkout where `make setup` was run. Both brokers
stay up and take turns (A B A B); the same native client loads both. A broker's cost is
read from `/proc`, so neighbours disturb it less than they disturb times. The first round finds
Kafka cold. Then it is warmed up with twelve million records, because its JIT needs some ten million
before its cost settles. Medians of the rounds after that are compared. The machine's best is
measured in every round too.

Cases over TLS or SASL have brokers of their own, with the same certificate, version and cipher
suite.

Both brokers keep Kafka's promise on one node: acknowledged means in the page cache. Only where a
case says so, txn forces commits to the disk; Kafka never does.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benches.application_cases import APPLICATION_CASES, client_limits
from benches.cases import CASES, FULL, QUICK, Case, Make, Scale, in_a_place, limits, warm_up
from benches.contestants import (
    KAFKA,
    KAFKA_VERSION,
    PEERS,
    ROOT,
    TXN,
    Contestant,
    Kafka,
    Txn,
    commit_of,
    python_of,
)
from benches.report import page
from benches.results import Line, Results, shown
from rich.console import Console
from rich.table import Table

ALL_CASES: Final = (*CASES, *APPLICATION_CASES)
REPORT: Final = Path(__file__).parent / "report.html"
FULL_MINUTES: Final = 38
QUICK_MINUTES: Final = 7


def main() -> None:
    arguments = _parse()
    scale = QUICK if arguments.quick else FULL
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    wanted = [case for case in ALL_CASES if not arguments.case or case.name in arguments.case]
    console = Console(stderr=True)
    if not arguments.case:
        minutes = QUICK_MINUTES if arguments.quick else FULL_MINUTES
        console.print(f"{len(wanted)} cases, {rounds} rounds: about {minutes} minutes")
    make_peer, peer_name = _peer(arguments)
    results = Results(_machine(), commit_of(ROOT), peer_name, rounds, arguments.quick)
    run = _Run(results, scale, rounds, console, make_peer)
    run.steady([case for case in wanted if case.is_steady])
    run.others([case for case in wanted if not case.is_steady])
    Console(width=None if os.isatty(1) else 160).print(_table(results, wanted))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(vars(results), indent=1))
    if not arguments.case and results.is_beside_kafka:
        REPORT.write_text(page(results, wanted))
        console.print(f"charts: {REPORT}")


def _parse() -> argparse.Namespace:
    names = [case.name for case in ALL_CASES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything; not to quote")
    parser.add_argument("--case", action="append", choices=names, help="only this one")
    parser.add_argument("--rounds", type=int, help="how many are compared (5; quick: 2)")
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument("--alone", action="store_true", help="txn only")
    beside.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="the txn of another checkout, not Kafka"
    )
    parser.add_argument("--json", type=Path, help="write every value there")
    arguments = parser.parse_args()
    if KAFKA_VERSION not in PEERS:
        parser.error(f"KAFKA_VERSION is {KAFKA_VERSION}: it may be {' or '.join(PEERS)}")
    if arguments.against and not (python := python_of(arguments.against.absolute())).exists():
        parser.error(f"there is no {python}: run `make setup` in {arguments.against}")
    return arguments


def _peer(arguments: argparse.Namespace) -> tuple[Make | None, str]:
    """The maker of the peer, if there is one, and its name."""
    if arguments.alone:
        return None, KAFKA
    if arguments.against is None:
        return Kafka, KAFKA
    checkout: Path = arguments.against.absolute()
    return partial(Txn, checkout=checkout), f"{TXN} {commit_of(checkout)}"


class _Run:
    """One run of the benches, with its progress."""

    def __init__(
        self,
        results: Results,
        scale: Scale,
        rounds: int,
        console: Console,
        make_peer: Make | None,
    ) -> None:
        self._results = results
        self._scale = scale
        self._rounds = rounds
        self._console = console
        self._makes: Sequence[Make] = (Txn, make_peer) if make_peer else (Txn,)
        self._began = time.monotonic()

    def steady(self, cases: list[Case]) -> None:
        """Cases whose brokers stay up, in turns."""
        if not cases:
            return
        with tempfile.TemporaryDirectory(
            prefix="txn-bench-", dir=os.environ.get("TXN_BENCH_DIR")
        ) as folder:
            place = Path(folder)
            brokers: list[Contestant] = [make(place) for make in self._makes]
            secured = [each.made_secured() for each in brokers if isinstance(each, (Txn, Kafka))]
            if any(case.is_durable for case in cases):
                brokers += [each.made_durable() for each in brokers if isinstance(each, Txn)]
            if any(case.is_secured for case in cases):
                brokers += secured
            brokers = [each for each in brokers if any(_takes_part(each, case) for case in cases)]
            for broker in brokers:
                self._say(f"starting {broker.name}")
                broker.start()
            try:
                self._take_turns(brokers, cases, place)
            finally:
                for broker in brokers:
                    broker.stop()

    def _take_turns(self, brokers: list[Contestant], cases: list[Case], place: Path) -> None:
        for case in cases:
            for broker in _taking_part(case, brokers):
                figures = self._measure(case, broker, "cold")
                if isinstance(broker, Kafka):
                    self._results.peer_cold[case.name] = figures
        for broker in brokers:
            self._say(f"warming up {broker.name}")
            warm_up(broker, self._scale)
        for number in range(1, self._rounds + 1):
            self._results.busy.append(os.getloadavg()[0])
            found = limits(place, self._scale.produce_bytes)
            if any(case in APPLICATION_CASES for case in cases):
                found |= client_limits(self._scale)
            for key, value in found.items():
                self._results.limits.setdefault(key, []).append(value)
            for case in cases:
                for broker in _taking_part(case, brokers):
                    figures = self._measure(case, broker, f"round {number}/{self._rounds}")
                    self._results.note(broker.name, case, figures)

    def _measure(self, case: Case, broker: Contestant, when: str) -> dict[str, float]:
        figures = case.measure(broker, self._scale)
        self._say(f"{when}  {case.name}  {broker.name}: {_in_short(case, figures)}")
        return figures

    def others(self, cases: list[Case]) -> None:
        """Cases that start brokers of their own."""
        for case in cases:
            for number in range(1, self._rounds + 1):
                for make, name in zip(self._makes, (TXN, self._results.peer_name), strict=False):
                    if make is Kafka and not case.for_peer:
                        continue
                    figures = in_a_place(_maker(make, case), case.measure, self._scale)
                    self._results.note(name, case, figures)
                    when = f"round {number}/{self._rounds}"
                    self._say(f"{when}  {case.name}  {name}: {_in_short(case, figures)}")

    def _say(self, what: str) -> None:
        self._console.print(f"[{time.monotonic() - self._began:5.0f} s] {what}", markup=False)


def _maker(make: Make, case: Case) -> Make:
    """The maker of the brokers of a case that starts its own."""

    def secured(place: Path) -> Contestant:
        made = make(place)
        assert isinstance(made, (Txn, Kafka))
        return made.made_secured()

    return secured if case.is_secured else make


def _taking_part(case: Case, brokers: Sequence[Contestant]) -> list[Contestant]:
    """The brokers of a steady case, in the order of their turns."""
    return [broker for broker in brokers if _takes_part(broker, case)]


def _takes_part(broker: Contestant, case: Case) -> bool:
    is_durable = isinstance(broker, Txn) and broker.is_durable
    is_of_kind = is_durable == case.is_durable or not isinstance(broker, Txn)
    return is_of_kind and (broker.ca is not None) == case.is_secured


def _in_short(case: Case, figures: dict[str, float]) -> str:
    return ", ".join(
        f"{figure.title} {figures[figure.key]:.4g} {figure.unit}".rstrip()
        for figure in case.figures
    )


def _table(results: Results, cases: list[Case]) -> Table:
    busy = statistics.median(results.busy) if results.busy else os.getloadavg()[0]
    title = (
        f"txn {results.commit} beside {results.peer_name}, medians of {results.rounds} rounds; "
        f"{results.machine}; load average {busy:.1f}"
    )
    table = Table(title=title, title_justify="left")
    for column in ("case", "figure", "txn", "peer, warm", "cold", "ratio", "limit", "target", ""):
        table.add_column(column, justify="left" if column in ("case", "figure") else "right")
    for case in cases:
        for figure in case.figures:
            table.add_row(
                case.title if figure is case.figures[0] else "", *_cells(results.line(case, figure))
            )
        table.add_section()
    return table


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.figure.title,
        f"{shown(line.txn)} {line.figure.unit}".rstrip(),
        shown(line.peer),
        shown(line.peer_cold),
        f"{shown(line.ratio)} ×" if line.ratio else "",
        shown(line.limit),
        line.target,
        {True: "met", False: "missed", None: ""}[line.is_met],
    )


def _machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} × {model}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
