"""The metadata log of a data directory: the image it holds, and the verification of its snapshots.

Reading leaves unreadable parts out; the verification of the partition itself finds them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from txn.inspect import files, segments
from txn.inspect.layout import StopState, list_partition
from txn.inspect.outcome import Outcome
from txn.metadata.image import Image
from txn.metadata.replay import MetadataReplay


def read_metadata(directory: Path) -> Image:
    """Fold the metadata log, from its newest snapshot on where it no longer begins at 0.

    Unreadable parts are left out: the verification of the partition itself finds them.
    """
    return replayed(directory, to_damage=False).image


def replayed(directory: Path, *, to_damage: bool) -> MetadataReplay:
    """Fold the metadata log, all its sound batches or those before the first damage."""
    replay = MetadataReplay(Image())
    if not directory.is_dir():
        return replay
    try:
        files = list_partition(directory)
    except OSError:
        return replay
    paths = [files.file(base_offset, ".log") for base_offset in files.segments]
    snapshots = sorted(name for name in files.names if name.endswith(".checkpoint"))
    if snapshots and files.segments[:1] != (0,):
        paths.insert(0, directory / snapshots[-1])
    for value in _values(paths, to_damage=to_damage):
        with suppress(ValueError):
            replay.read(value)
    return replay


def _values(paths: Sequence[Path], *, to_damage: bool) -> Iterator[bytes]:
    """The values of the records in the sound batches of segments; a segment may go away."""
    for path in paths:
        with suppress(OSError):
            for batch in segments.walk(path):
                is_damaged = isinstance(batch, segments.Damage) or bool(batch.fault)
                if is_damaged and to_damage:
                    return
                if isinstance(batch, segments.Damage) or is_damaged or batch.is_control:
                    continue
                with suppress(segments.UnreadableBatchError):
                    yield from (record.value or b"" for record in segments.records_of(path, batch))


def verify_metadata_snapshot(path: Path, outcome: Outcome) -> None:
    """Verify a snapshot of the metadata log: batches from offset 0 on, of one leader epoch."""
    try:
        files.require_plain(path)
        check = segments.check(path, 0, b"", b"", is_deep=True)
        check.advance(check.end)
        ends_in_order = _ends_with_control_batch(path)
    except files.UnusableError as error:
        outcome.find(path, None, str(error))
        return
    except OSError as error:
        if outcome.state is not StopState.IN_USE or not isinstance(error, FileNotFoundError):
            outcome.not_read(path, error)
        return
    for _, position, _, _, reason in check.faults:
        outcome.find(path, position, reason)
    for position, expected, actual in check.gaps:
        outcome.find(path, position, f"offsets {expected} to {actual - 1} are missing here")
    if not check.faults and not ends_in_order:
        outcome.find(path, check.end, "it ends in the middle")
    for leader_epoch, position, _, _ in check.leader_epochs[1:]:
        outcome.find(path, position, f"leader epoch {leader_epoch} is not that of its beginning")
    outcome.batches += check.batches
    outcome.records += check.records
    outcome.bytes_read += check.end


def _ends_with_control_batch(path: Path) -> bool:
    """Return True if a snapshot has its end; a start passes over one that has not."""
    last = next(iter(deque(segments.walk(path), maxlen=1)), None)
    return isinstance(last, segments.SegmentBatch) and last.is_control
