"""Commands beside a full disk or a file in the place of a directory, and the check of a start."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import txn
from support.command_line import run_txn


def on_a_full_disk(*words: object) -> tuple[int, str, str]:
    """The command in a process whose files cannot grow beyond no byte."""

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "txn", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=fill,  # no other thread is at work
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [("serve", "--listen", "127.0.0.1:0", "--data"), ("users", "add", "--data")],
    ids=["serve", "users add"],
)
def test_a_full_disk_is_not_taken_for_an_output_that_cannot_be_written(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """It said: cannot write the output."""
    data = tmp_path / "data"
    password = tmp_path / "password"
    password.write_text("pass\n")
    user = ("--password-file", password, "ann") if words[0] == "users" else ()
    code, out, err = on_a_full_disk(*words, data, *user)
    assert (code, out) == (1, "")
    assert err == (
        f"txn: cannot use {data} as data directory: {data / 'meta.properties'}: File too large. "
        "Make room there, or give another directory\n"
    )


def test_a_lost_cache_that_cannot_be_noted_names_the_file(tmp_path: Path) -> None:
    """It said: [Errno 27] File too large."""
    txn.Broker(tmp_path).close()
    code, out, err = on_a_full_disk("log", "lost-cache", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(f"txn: cannot use {tmp_path} as data directory: {tmp_path / '.lock'}: ")
    assert run_txn("log", "lost-cache", tmp_path)[0] == 0


def test_a_demo_without_a_place_is_one_line(tmp_path: Path) -> None:
    """It was a traceback."""
    file = tmp_path / "file"
    file.write_text("")
    code, out, err = run_txn("demo", "--directory", file)
    assert (code, out) == (1, "")
    assert err == f"txn: {file} cannot be used: Not a directory. Give a new directory\n"


@pytest.mark.parametrize("is_check", [True, False])
def test_a_check_refuses_metrics_that_a_start_refuses(is_check: bool) -> None:
    """The check said that all is well."""
    start = ("serve", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0")
    code, out, err = run_txn(*start, *["--check"] * is_check)
    assert (code, out) == (2, "")
    assert "set metrics.allow.remote=true" in err
