"""Play every boundary, as a crash and as a power failure with every loss; takes an hour.

    python -m stops                            everything
    python -m stops --version 2 --every 10     every tenth boundary, for clients of one version
    python -m stops --losses all zeros         some of the losses

Exit code 0: no promise was broken; 1: one was. The directories of those runs are left.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stops.life import DIALECTS
from stops.run import SOME, Setting, Stage, Stop
from stops.sure import LOSSES
from stops.tracer import Boundary

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


def play(setting: Setting, kinds: list[str], every: int, work: Path) -> int:
    """Play some kinds of stops; return how many broke a promise."""
    stage = Stage(work, setting)
    boundaries = stage.boundaries()
    broken_runs = 0
    for kind in kinds:
        stops = list(stops_of(boundaries[::every], kind))
        broken, unmet = stage.stop_at_each(stops)
        print(
            f"version {setting.version}, durability {setting.durability}, {kind}: "
            f"{len(boundaries)} boundaries, {len(stops)} runs, {len(broken)} broken, "
            f"{len(unmet)} not met",
            flush=True,
        )
        print(*broken, sep="\n", end="\n" if broken else "", flush=True)
        broken_runs += len(broken)
    return broken_runs


def main() -> int:
    """Play what is asked for."""
    options = argparse.ArgumentParser(description=__doc__, usage="python -m stops [options]")
    options.add_argument("--version", type=int, nargs="*", choices=[*DIALECTS], default=[*DIALECTS])
    options.add_argument("--every", type=int, default=1, help="one boundary of so many")
    kinds = [*LOSSES, SOME]
    options.add_argument("--losses", nargs="*", choices=kinds, default=kinds)
    asked = options.parse_args()
    work, broken = Path(tempfile.mkdtemp(prefix="stops-")), 0
    for version in asked.version:
        for durability, played in (
            ("process", [CRASH, HALF_CRASH]),
            ("commit", [CRASH, *asked.losses]),
        ):
            here = work / f"{durability}-{version}"
            broken += play(Setting(version, durability), played, asked.every, here)
    print(f"{broken} broken; directories are in {work}")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
