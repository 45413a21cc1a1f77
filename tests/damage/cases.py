"""Damage to a data directory while nobody runs: every file, every kind of damage."""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from damage.left import batch_positions, checkpoint_of, let_the_power_fail

GARBAGE: Final = bytes((7 * n * n + n // 3) % 251 for n in range(5000))
"""Longer than any batch of the directories."""

BASE_OFFSET_BYTES = 8
FIRST_CHECKED_BYTE = 21
"""Position in a batch: from here on everything is under its checksum, as in Apache Kafka."""

STATES: Final = ("closed", "killed", "power")


@dataclass(frozen=True, order=True)
class DamageCase:
    """One damage to one directory.

    Attributes:
        broker: The maker of the directory, "txn" or "kafka".
        state: How it was left: "closed", "killed", or "power" for a power failure.
        path: The damaged file, in the directory.
        damage: A key of `FILE_DAMAGES` or `DIRECTORY_DAMAGES`.
    """

    broker: str
    state: str
    path: str
    damage: str

    def __str__(self) -> str:
        return f"{self.broker} {self.state} {self.path} {self.damage}"

    @property
    def place(self) -> str:
        """The name of the damaged partition's directory, or of the file beside them."""
        return Path(self.path).parts[0]

    @property
    def kind(self) -> tuple[bool, str]:
        """The kind of the damaged file: whether it is internal, and its name without numbers."""
        path = Path(self.path)
        is_partition = self.damage in DIRECTORY_DAMAGES
        name = "partition" if is_partition else path.name.lstrip("0123456789")
        return self.place.startswith("__"), name

    @property
    def is_cut(self) -> bool:
        """The bytes that are left are those that were written first."""
        return self.damage in ("cut by a byte", "cut to half", "emptied", "removed")


def _flip(path: Path, position: int, bit: int) -> None:
    """Flip a bit.

    The base offset of the last batch is under no checksum, as in Apache Kafka, and no batch behind
    contradicts it: there it is the next field.
    """
    stored = bytearray(path.read_bytes())
    last = batch_positions(stored)[-1:] if path.suffix == ".log" else []
    if last and position - last[0] in range(BASE_OFFSET_BYTES):
        position += BASE_OFFSET_BYTES
    stored[position] ^= 1 << bit
    path.write_bytes(stored)


def _flip_start(path: Path) -> None:
    _flip(path, 0, 2)


def _flip_middle(path: Path) -> None:
    _flip(path, path.stat().st_size // 2, 3)


def _flip_end(path: Path) -> None:
    _flip(path, path.stat().st_size - 1, 0)


def _flip_last_batch(path: Path) -> None:
    """Damage in its first byte under the checksum: its attributes."""
    _flip(path, batch_positions(path.read_bytes())[-1] + FIRST_CHECKED_BYTE + 1, 4)


def _cut_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _cut_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(GARBAGE)


def _grow_by_zeros(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(len(GARBAGE)))


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _zero_last_batch(path: Path) -> None:
    stored = path.read_bytes()
    position = batch_positions(stored)[-1]
    path.write_bytes(stored[:position] + bytes(len(stored) - position))


def _begin_swap(path: Path) -> None:
    """A swap of the cleaner whose new segment is damaged; the old one is there."""
    path.with_suffix(".log.swap").write_bytes(path.read_bytes()[:-1])


def _swap(path: Path) -> None:
    """The same, and the old segment is on its way out."""
    _begin_swap(path)
    path.rename(path.with_suffix(".log.deleted"))


def _replace_by_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"")


OF_ANY_FILE: Final[Mapping[str, Callable[[Path], None]]] = {
    "removed": Path.unlink,
    "a FIFO": _replace_by_fifo,
    "a directory": _replace_by_directory,
    "grown by garbage": _grow,
    "grown by zeros": _grow_by_zeros,
}
OF_BYTES: Final[Mapping[str, Callable[[Path], None]]] = {
    "bit flipped at the start": _flip_start,
    "bit flipped in the middle": _flip_middle,
    "bit flipped at the end": _flip_end,
    "cut by a byte": _cut_byte,
    "cut to half": _cut_half,
    "emptied": _empty,
    "zeros": _zero,
}
OF_BATCHES: Final[Mapping[str, Callable[[Path], None]]] = {
    "bit flipped in the last batch": _flip_last_batch,
    "zeros for the last batch": _zero_last_batch,
    "a damaged swap beside it": _begin_swap,
    "a damaged swap in its place": _swap,
}
FILE_DAMAGES: Final = {**OF_ANY_FILE, **OF_BYTES, **OF_BATCHES}
DIRECTORY_DAMAGES: Final[Mapping[str, Callable[[Path], None]]] = {
    "directory removed": shutil.rmtree,
    "a file in its place": _replace_by_file,
}


def cases_of(broker: str, state: str, left: Path) -> Iterator[DamageCase]:
    """Every damage to a directory as it was left."""
    for path in sorted(left.rglob("*")):
        name = str(path.relative_to(left))
        if path.is_dir():
            damages = [*DIRECTORY_DAMAGES]
        else:
            size = path.stat().st_size
            has_batches = path.suffix == ".log" and bool(batch_positions(path.read_bytes()))
            damages = [*OF_ANY_FILE, *(OF_BYTES if size else ())]
            damages += [*OF_BATCHES] if has_batches else []
        yield from (DamageCase(broker, state, name, damage) for damage in damages)


def in_rounds(cases: Sequence[DamageCase], chance: random.Random) -> Iterator[DamageCase]:
    """All cases, in rounds: in each of them every kind of file of every directory is damaged once.

    The first rounds have every damage, too.
    """
    groups: dict[tuple[str, str, tuple[bool, str]], list[DamageCase]] = {}
    for case in chance.sample(cases, len(cases)):
        groups.setdefault((case.broker, case.state, case.kind), []).append(case)
    played: Counter[tuple[str, str]] = Counter()
    common = Counter(case.damage for case in cases)
    while groups:
        for key in sorted(groups):
            case = min(
                groups[key],
                key=lambda each: (played[each.state, each.damage], common[each.damage]),
            )
            groups[key].remove(case)
            played[case.state, case.damage] += 1
            yield case
        groups = {key: each for key, each in groups.items() if each}


def first_round(cases: Sequence[DamageCase]) -> int:
    """Number of cases in the first round: of kinds of files, in all directories."""
    return len({(case.broker, case.state, case.kind) for case in cases})


def damaged_copy(case: DamageCase, left: Path, to: Path) -> None:
    """Copy a directory and damage it; it is the directory of the machine that failed, too."""
    shutil.copytree(left, to)
    if case.state == "power":
        let_the_power_fail(to)
    _damage(case, to)


def damaged_checkpoint(case: DamageCase, left: Path) -> dict[str, int]:
    """The offsets of a checkpoint with its damage."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(left / case.path, name)
        _damage(case, Path(name))
        return checkpoint_of(Path(name), case.path)


def _damage(case: DamageCase, data: Path) -> None:
    {**FILE_DAMAGES, **DIRECTORY_DAMAGES}[case.damage](data / case.path)
