"""A data directory that cannot be written to, as a snapshot or a backup, can be looked at.

The story: `txn log verify` on a read-only mount found every partition unreadable, and advised to
give the data up. Segments were opened for writing, though nothing was to be written.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import txn
from support import mounts
from support.clients import send, transactional_producer
from support.damaged import VALUES, closed_directory, flip_bit, segment_of


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was stopped in order, with an open transaction."""
    data = closed_directory(tmp_path_factory.mktemp("closed") / "data")
    with txn.Broker(data) as broker:
        producer = transactional_producer(broker.bootstrap_servers, "held")
        producer.begin_transaction()
        send(producer, "good", [b"open"])
    return data


def run(
    source: Path, tmp_path: Path, *words: str, mounted: str = "mounted"
) -> subprocess.CompletedProcess[str]:
    """Run `txn` where `source` is mounted at `mounted`, for reading alone."""
    command = mounts.read_only(source, tmp_path / mounted)
    return subprocess.run(
        [*command, *mounts.python("-m", "txn", *words)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_verify_finds_nothing_in_a_sound_directory_that_is_read_only(
    closed: Path, tmp_path: Path, state: str
) -> None:
    data = Path(shutil.copytree(closed, tmp_path / "data"))
    if state == "killed":
        (data / ".kafka_cleanshutdown").unlink()
    found = run(data, tmp_path, "log", "verify", "mounted", "--json")
    assert found.returncode == 0, found.stdout + found.stderr
    assert json.loads(found.stdout)["findings"] == []


@pytest.mark.parametrize(
    "words",
    [
        ["log", "dump", "mounted/good-0"],
        ["log", "dump", "mounted/__cluster_metadata-0"],
        ["explain", "good", "--data", "mounted"],
        ["transactions", "list", "--data", "mounted"],
        ["transactions", "describe", "held", "--data", "mounted"],
        ["transactions", "hanging", "--data", "mounted"],
    ],
)
def test_every_look_at_files_says_the_same_of_a_read_only_directory(
    closed: Path, tmp_path: Path, words: Sequence[str]
) -> None:
    copy = Path(shutil.copytree(closed, tmp_path / "copy"))
    seen = run(copy, tmp_path, *words)
    (tmp_path / "mounted").rmdir()
    copy.rename(tmp_path / "mounted")
    expected = subprocess.run(
        mounts.python("-m", "txn", *words), cwd=tmp_path, capture_output=True, text=True
    )
    assert (seen.returncode, seen.stderr) == (expected.returncode, expected.stderr)
    assert _without_ages(seen.stdout) == _without_ages(expected.stdout)
    assert seen.stdout


def _without_ages(text: str) -> list[str]:
    """The words of a text but for durations, which grow."""
    return [word for word in text.split() if not word[:1].isdigit()]


def test_the_damage_of_a_read_only_directory_can_be_judged(closed: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(closed, tmp_path / "data"))
    (data / ".kafka_cleanshutdown").unlink()
    flip_bit(segment_of(data), 100)
    looked = run(data, tmp_path, "log", "accept-loss", "mounted", "bad-0", "--dry-run", "--json")
    assert looked.returncode == 0, looked.stderr
    (seen,) = json.loads(looked.stdout)
    assert (seen["partition"], seen["next_offset"]) == ("bad-0", len(VALUES))
    refused = run(data, tmp_path, "log", "accept-loss", "mounted", "bad-0")
    assert refused.returncode == 2
    assert "Read-only file system" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_broker_on_a_read_only_directory_says_why_it_does_not_start(
    closed: Path, tmp_path: Path
) -> None:
    refused = run(closed, tmp_path, "serve", "--data", "mounted", "--listen", "127.0.0.1:0")
    assert refused.returncode != 0
    assert "Read-only file system" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_user_who_may_only_read_can_verify_a_directory(closed: Path, tmp_path: Path) -> None:
    """Needs no mount. Root gives up its right to write to any file."""
    data = Path(shutil.copytree(closed, tmp_path / "data"))
    (data / ".kafka_cleanshutdown").unlink()
    for path in [data, *data.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    command = mounts.python("-m", "txn", "log", "verify", str(data))
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("there is no setpriv, by which root gives up a right")
        command = ["setpriv", "--bounding-set=-dac_override", *command]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout + found.stderr
