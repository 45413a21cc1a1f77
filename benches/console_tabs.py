"""The price of a console for the broker's clients: p99 of produce without and with 20 open tabs.

    python -m benches.console_tabs [--tabs 20] [--rounds 5] [--seconds 20] [--topics 200]

One client sends one record after the other and waits for each. Rounds without and with tabs take
turns. Half of the tabs follow a page by events, as a visible tab does. The others load one page
after the other. Followed pages are those of Held readers, Transactions, Topics and
Activity. The figure is the ratio of the medians of the rounds' p99, of one run: the machine is in
both.

Broker, console, tabs and client are processes of their own on one machine. So on few cores the tabs
take processors from the client, too: state the number of cores beside the figure.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from typing import Final

from benches.contestants import ROOT
from confluent_kafka import Producer

from support.brokers import BrokerProcess
from support.clients import WAIT_S, create_topic, send, transactional_producer
from support.console import Browser, ConsoleProcess

FOLLOWED: Final = ("/", "/transactions", "/topics", "/activity")
LOADED: Final = (
    "/",
    "/readers/orders",
    "/transactions",
    "/transactions/one?id=holds",
    "/topics",
    "/topics/orders",
    "/topics/orders/0",
    "/groups",
    "/activity",
    "/cluster/1",
)
PAUSE_S: Final = 0.002
"""Between two records: the client is well-behaved, and fills no queue."""


def main() -> None:
    """Print the p99 of each round, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("tabs", 20), ("rounds", 5), ("seconds", 20), ("topics", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--be-tabs", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be_tabs:
        be_tabs(int(given.be_tabs[0]), given.be_tabs[1], given.tabs)
        return
    with tempfile.TemporaryDirectory() as place:
        broker = BrokerProcess(Path(place) / "data")
        measure(broker.bootstrap_servers, given)
        broker.stop()


def measure(servers: str, given: argparse.Namespace) -> None:
    """Play the rounds."""
    for number in range(given.topics):
        create_topic(servers, f"topic-{number}")
    create_topic(servers, "orders", 4)
    holder = transactional_producer(servers, "holds", transaction_timeout_ms=900_000)
    holder.begin_transaction()
    send(holder, "orders", [b"not yet"], 3)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})
    produced(producer, given.seconds / 4)  # connections, and the first segments
    p99s: dict[bool, list[float]] = {False: [], True: []}
    for number in range(given.rounds):
        for has_tabs in (False, True):
            looks = None
            if has_tabs:
                console = ConsoleProcess("--bootstrap", servers)
                tabs = opened(console, given.tabs)
            latencies = produced(producer, given.seconds)
            if has_tabs:
                looks = closed(tabs)
                console.stop()
            p99 = statistics.quantiles(latencies, n=100)[98]
            p99s[has_tabs].append(p99)
            row = {
                "round": number,
                "tabs": given.tabs if has_tabs else 0,
                "looks": looks,
                "records": len(latencies),
                "p50_ms": round(statistics.median(latencies), 3),
                "p99_ms": round(p99, 3),
            }
            print(json.dumps(row), flush=True)
    holder.abort_transaction(WAIT_S)
    without, with_tabs = (statistics.median(p99s[has_tabs]) for has_tabs in (False, True))
    print(
        json.dumps(
            {
                "p99_ms_without": round(without, 3),
                "p99_ms_with": round(with_tabs, 3),
                "ratio": round(with_tabs / without, 2),
                "cores": os.cpu_count(),
                "load": [round(each, 1) for each in os.getloadavg()],
            }
        )
    )


def produced(producer: Producer, seconds: float) -> list[float]:
    """Send records one after the other; return the milliseconds of each, to its acknowledgement."""
    found = []
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        begun_s = time.perf_counter()
        producer.produce("orders", b"v" * 100, partition=0)
        if producer.flush(WAIT_S):
            raise RuntimeError("the broker does not answer")
        found.append((time.perf_counter() - begun_s) * 1_000)
        time.sleep(PAUSE_S)
    return found


# ---------------------------------------------------------------- tabs


def opened(console: ConsoleProcess, tabs: int) -> subprocess.Popen[str]:
    """A process with open tabs, once each of them has got its first answer."""
    browser = console.browser()
    command = [sys.executable, "-m", "benches.console_tabs", "--tabs", str(tabs)]
    process = subprocess.Popen(
        [*command, "--be-tabs", str(console.port), browser.cookie],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def closed(process: subprocess.Popen[str]) -> int:
    """Close the tabs; return the number of their answers and events."""
    found, _ = process.communicate("close\n")
    return int(found)


def be_tabs(port: int, cookie: str, tabs: int) -> None:
    """Be the process with the tabs: until a line on standard input."""
    looks, are_open = count(), threading.Barrier(tabs + 1)
    for number in range(tabs):
        work = follow if number % 2 else load
        given = (port, cookie, number // 2, looks, are_open)
        threading.Thread(target=work, args=given, daemon=True).start()
    are_open.wait()
    print("open", flush=True)
    sys.stdin.readline()
    print(next(looks), flush=True)
    os._exit(0)


def follow(
    port: int, cookie: str, number: int, looks: "count[int]", are_open: threading.Barrier
) -> None:
    """Follow a page by events for ever."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Cookie": cookie, "Accept": "text/event-stream"}
    connection.request("GET", FOLLOWED[number % len(FOLLOWED)], headers=headers)
    answer = connection.getresponse()
    answer.readline()
    are_open.wait()
    while answer.readline():
        next(looks)


def load(
    port: int, cookie: str, number: int, looks: "count[int]", are_open: threading.Barrier
) -> None:
    """Load a page after the other for ever."""
    browser = Browser(port)
    browser.cookie = cookie
    for each in count(number):
        if browser.get(LOADED[each % len(LOADED)]).status != 200:
            raise RuntimeError(f"no answer about {LOADED[each % len(LOADED)]}")
        if each == number:
            are_open.wait()
        next(looks)


if __name__ == "__main__":
    main()
