"""Mutated requests by the million: real brokers with real rules, loaded by `txn-mutate`.

    PYTHONPATH=tests python -m hostile.mutate --requests 100000000 --seed 7

A round is a fresh broker and at most `ROUND` requests. So topics and ids that requests may leave
behind are not piled up until every request is about millions of them. Beside each round a sound
client runs transactions and reads them back. At its end the broker holds little more than before,
its log has no error, it stops cleanly, and its directory passes `txn log verify`.

A request counts once the broker has decided on it: by an answer, by closing the connection for it,
or by answering a later one of the connection.
"""

import argparse
import json
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

from hostile.frames import Values, apis, body_of, frame
from hostile.fuzzer import PREFIX, Wild
from hostile.neighbour import TOPIC, Neighbour, p99
from hostile.target import MIB, TargetBroker
from support.brokers import TESTS
from support.clients import create_topic, read_all
from support.memory import MEMORY
from txn.wire.kio import load_request_schema
from txn.wire.plain_bodies import decode_untrusted

GENERATOR: Final = TESTS.parent / "target" / "release" / "txn-mutate"
ROUND: Final = 500_000
SOUND_EACH: Final = 6
WILD_EACH: Final = 12
GROWTH_MAX: Final = 200 * MIB
KEPT_BYTES: Final = 20
"""Items that a request leaves for good on average: few make a transactional id or a topic."""

BODY_BYTES_MAX: Final = 16 << 10
FREE_MAX: Final = 200
"""Positions of a body that are looked at."""

P99_S: Final = 1.0
"""For a neighbour's transaction, on cores that are full for an hour."""


def write_corpus(path: Path, seed: int) -> None:
    """Write frames of every API and version, sound and wild.

    Behind each stand the positions in its body whose bytes may have other values, and how many.
    """
    chance = Random(seed)
    sound, wild = Values(chance, PREFIX), Wild(chance, PREFIX)
    with path.open("wb") as file:
        for key, version in apis():
            schema = load_request_schema(key, version)
            for values, count in ((sound, SOUND_EACH), (wild, WILD_EACH)):
                for _ in range(count):
                    body = body_of(schema, values)[:BODY_BYTES_MAX]
                    free = _free_positions(key, version, body)
                    file.write(frame(key, version, body))
                    file.write(struct.pack(f">{1 + len(free)}H", len(free), *free))


def _free_positions(key: int, version: int, body: bytes) -> list[int]:
    """The positions at which other bytes leave a body readable; Rust reads records' insides."""
    return [
        at
        for at in range(min(len(body), FREE_MAX))
        if all(_is_readable(key, version, _with(body, at, value)) for value in (0, 1, 0x7F))
    ]


def _with(body: bytes, at: int, value: int) -> bytes:
    return body[:at] + bytes([value]) + body[at + 1 :]


def _is_readable(key: int, version: int, body: bytes) -> bool:
    try:
        decode_untrusted(load_request_schema(key, version), body)
    except Exception:  # any: the sender is not trusted
        return False
    return True


def run_round(place: Path, seed: int, requests: int) -> tuple[dict[str, Any], list[str]]:
    """Run a round; return the counts and the faults."""
    write_corpus(place / "corpus", seed)
    target = TargetBroker(place / "data")
    try:
        return _run_against(target, place, seed, requests)
    finally:
        target.kill()  # it ran on if the round was interrupted


def _run_against(
    target: TargetBroker, place: Path, seed: int, requests: int
) -> tuple[dict[str, Any], list[str]]:
    servers = target.bootstrap_servers
    create_topic(servers, TOPIC)
    with Neighbour(servers, "warm-up"):
        time.sleep(0.1)
    before = target.gauges()
    command = [str(GENERATOR), "--bootstrap", servers, "--corpus", str(place / "corpus")]
    command += ["--requests", str(requests), "--seed", str(seed)]
    with Neighbour(servers) as neighbour:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    faults = [f"{line}" for line in target.faults_in_log()[:5]]
    if done.returncode != 0 or target.has_ended():
        return {}, [*faults, f"the generator ends with {done.returncode}; the broker is gone"]
    counts: dict[str, Any] = json.loads(done.stdout)
    if neighbour.failure is not None:
        faults.append(f"a neighbour's transaction failed: {neighbour.failure!r}")
    elif p99(neighbour.times_s) > P99_S:
        faults.append(f"a neighbour's transactions took {p99(neighbour.times_s):.2f} s, p99")
    try:
        kept = GROWTH_MAX + KEPT_BYTES * counts["decided"]
        target.await_calm(before, memory=kept, descriptors=2_000, threads=60)
    except AssertionError as error:
        faults.append(f"a leak: {error}")
    counts |= {"grown_mb": (target.gauges().memory - before.memory) / MIB}
    counts |= {"transactions": len(neighbour.times_s)}
    values = [value for value in read_all(servers, TOPIC) if value is not None]
    if values[-len(neighbour.written) :] != neighbour.written:
        faults.append("the neighbour's records are not those that it wrote")
    faults += target.stop_and_verify()
    return counts, faults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=100_000_000)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    decided, by_api = 0, Counter[str]()
    number = 0
    while decided < asked.requests:
        seed = asked.seed * 1_000_003 + number
        with tempfile.TemporaryDirectory(prefix="txn-mutate-", dir=MEMORY) as place:
            counts, faults = run_round(Path(place), seed, min(ROUND, asked.requests - decided))
        number += 1
        decided += counts.get("decided", 0)
        by_api.update(counts.pop("by_api", {}))
        print(f"round {number}, {decided} decided: {counts}", flush=True)
        if faults:
            print("\n".join([f"seed {seed}:", *faults]))
            sys.exit(1)
    print(f"{decided} mutated requests, no fault: {dict(sorted(by_api.items()))}")


if __name__ == "__main__":
    main()
