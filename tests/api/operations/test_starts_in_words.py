"""A start that cannot be is refused in one line, which names the cause and the way out."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import txn
from support.clients import create_topic, plain_producer, send

WAIT_S = 60
NOBODY = 65_534


def serve(
    *words: object, before: Callable[[], object] = int, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`txn serve` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "txn", "serve", "--listen", "127.0.0.1:0", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, **environment},
        preexec_fn=before,
    )


def refusal_of(ended: subprocess.CompletedProcess[str]) -> str:
    """The one line in which a start was refused."""
    assert ended.returncode != 0
    (line,) = [each for each in ended.stderr.splitlines() if not each.startswith("2")]
    assert line.startswith("txn: ")
    return line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start as another user")
@pytest.mark.parametrize("given_back", [("", ".lock", "meta.properties"), ()])
def test_files_that_root_left_are_named_with_their_owner(given_back: tuple[str, ...]) -> None:
    """It read "Permission denied. Remove it" of the mark of a clean stop."""
    data = Path(tempfile.mkdtemp())  # pytest's own is for its user alone
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"1"])
    for name in given_back:
        os.chown(data / name, NOBODY, NOBODY)

    os.seteuid(NOBODY)
    try:
        with pytest.raises(txn.DirectoryError) as told:
            txn.Broker(data)
    finally:
        os.seteuid(0)
    assert "belongs to root, and this process runs as nobody" in str(told.value)
    assert "chown -R nobody" in str(told.value)
    assert "Remove it" not in str(told.value)
    with txn.Broker(data):
        pass
    shutil.rmtree(data)


def test_a_limit_of_descriptors_that_is_too_small_is_refused_at_the_start(tmp_path: Path) -> None:
    """Its files were refused at work, as by a disk that is broken."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))

    told = refusal_of(serve("--data", tmp_path / "data", before=limit))
    assert "may open 100 files and sockets, and a broker needs 128 at least" in told
    assert not (tmp_path / "data").exists()


def test_a_start_without_a_place_for_temporary_files_says_so(tmp_path: Path) -> None:
    program = (
        "import sys, tempfile, txn.cli\n"
        "tempfile._candidate_tempdir_list = lambda: ['/proc/none']\n"
        "sys.argv[1:] = ['serve', '--listen', '127.0.0.1:0']\n"
        "txn.cli.main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S
    )
    assert "there is no place for a temporary data directory" in refusal_of(ended)


@pytest.mark.parametrize("name", ["data", "data/deeper"])
def test_a_link_that_leads_nowhere_is_no_data_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "nowhere")
    assert "data: it is a link to" in refusal_of(serve("--data", tmp_path / name))


def test_a_signal_while_modules_load_ends_the_command_in_one_line() -> None:
    program = (
        "import os, signal, sys, txn.cli\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'txn.server.lifecycle.serve':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "sys.argv[1:] = ['serve', '--listen', '127.0.0.1:0']\n"
        "txn.cli.main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S
    )
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGINT, "txn: interrupted\n")
