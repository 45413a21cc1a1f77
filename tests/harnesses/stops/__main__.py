"""Play every boundary, as a crash and as a power failure with every loss; takes an hour.

    python -m harnesses.stops                          everything
    python -m harnesses.stops --version 2 --every 10   every tenth boundary, clients of one version
    python -m harnesses.stops --losses all zeros       some of the losses
    python -m harnesses.stops --starts 15              every 15th boundary, and its whole start

Exit code 0: no promise was broken; 1: one was. The directories of those runs are left.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harnesses.stops.life import DIALECTS
from harnesses.stops.run import SOME, PreparedDirectory, Setting, Stop
from harnesses.stops.sure import LOSSES
from harnesses.stops.tracer import Boundary

CRASH, HALF_CRASH = "crash", "half-crash"
WRITES_KEPT = ("halves", "nothing", SOME)
"""Losses that leave something of a write that did not end."""


def stops_of(boundaries: list[Boundary], kind: str) -> Iterator[Stop]:
    """The stops of one kind: at every boundary, or half-way through every write."""
    for boundary in boundaries:
        if kind == CRASH:
            yield Stop(boundary)
        elif kind != HALF_CRASH:
            yield Stop(boundary, half=boundary.is_write and kind in WRITES_KEPT, loss=kind)
        elif boundary.is_write:
            yield Stop(boundary, half=True)


IN_STARTS: Final = ((None, None), (None, SOME), ("all", "all"), (SOME, SOME))
"""The losses of a stop, and those of a stop of the start after it."""


def stops_in_starts(
    stage: PreparedDirectory, boundaries: list[Boundary]
) -> Iterator[tuple[str, list[Stop]]]:
    """The stops of the start after each of some boundaries."""
    for first, second in IN_STARTS:
        stops = [
            Stop(boundary, loss=first, then=Stop(each, loss=second))
            for boundary in boundaries
            for each in stage.boundaries_after(Stop(boundary, loss=first))
        ]
        yield f"{_kind(first)}, then {_kind(second)} in the start after it", stops


def _kind(loss: str | None) -> str:
    return CRASH if loss is None else f"loss of {loss}"


def play(stage: PreparedDirectory, what: str, stops: list[Stop]) -> int:
    """Play some stops, say how it went, and return how many broke a promise."""
    broken, unmet = stage.stop_at_each(stops)
    print(f"{what}: {len(stops)} runs, {len(broken)} broken, {len(unmet)} not met", flush=True)
    print(*broken, sep="\n", end="\n" if broken else "", flush=True)
    return len(broken)


def main() -> int:
    """Play the requested runs."""
    options = argparse.ArgumentParser(
        description=__doc__, usage="python -m harnesses.stops [options]"
    )
    options.add_argument("--version", type=int, nargs="*", choices=[*DIALECTS], default=[*DIALECTS])
    options.add_argument("--every", type=int, default=1, help="one boundary of so many")
    options.add_argument("--starts", type=int, help="stop in the start after one of so many")
    kinds = [*LOSSES, SOME]
    options.add_argument("--losses", nargs="*", choices=kinds, default=kinds)
    asked = options.parse_args()
    work, broken = Path(tempfile.mkdtemp(prefix="stops-")), 0
    for version in asked.version:
        for durability, played in (
            ("process", [CRASH, HALF_CRASH, *asked.losses]),
            ("commit", [CRASH, *asked.losses]),
        ):
            stage = PreparedDirectory(
                work / f"{durability}-{version}", Setting(version, durability)
            )
            boundaries = stage.boundaries()
            if asked.starts:
                runs = stops_in_starts(stage, boundaries[:: asked.starts])
            else:
                every = boundaries[:: asked.every]
                runs = ((kind, list(stops_of(every, kind))) for kind in played)
            for what, stops in runs:
                broken += play(stage, f"version {version}, durability {durability}, {what}", stops)
    print(f"{broken} broken; directories are in {work}")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
