"""`txn serve --console`: a process beside the broker that ends with it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.brokers import UNBUFFERED
from support.clients import WAIT_S
from support.console import Browser
from txn.errors import ConfigError
from txn.security.listeners import ListenerSpec
from txn.server.lifecycle.console_process import way_for_console

LISTENS = ("--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")


@contextmanager
def broker(*options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker with a console, and the console's start line."""
    command = [sys.executable, "-m", "txn", "serve", *LISTENS, *map(str, options)]
    buffered = {name: value for name, value in os.environ.items() if name != UNBUFFERED}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=buffered)
    assert process.stdout is not None
    try:
        with process.stdout as output:
            assert output.readline().startswith("listening on ")
            yield process, output.readline()
    finally:
        process.kill()
        process.wait()


def consoles_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [each for each in psutil.Process(process.pid).children() if "console" in each.cmdline()]


def browser_of(line: str) -> Browser:
    found = re.fullmatch(r"console on http://127\.0\.0\.1:(\d+)(/\?token=\S+)\n", line)
    assert found is not None, line
    browser = Browser(int(found[1]))
    assert browser.get(found[2]).status == 303
    return browser


def test_it_shows_the_broker_and_ends_with_it_at_sigterm(tmp_path: Path) -> None:
    with broker("--data", tmp_path / "data") as (process, line):
        assert "No transaction holds readers back" in browser_of(line).get("/").text
        (console,) = consoles_of(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert not console.is_running()


SASL = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
SASL += "sasl.username=ada\nsasl.password=secret\n"


def test_a_plain_listener_is_asked_without_the_properties_of_another_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console logged in at a listener that knows no log-in, and no page was there."""
    config = tmp_path / "client.properties"
    config.write_text(SASL)
    monkeypatch.setenv("TXN_COMMAND_CONFIG", str(config))
    with broker("--data", tmp_path / "data") as (_, line):
        assert "No transaction holds readers back" in browser_of(line).get("/").text


def test_the_listener_has_the_protocol_of_the_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "client.properties"
    specs = [
        ListenerSpec(name, "127.0.0.1", 0, protocol, None, is_inter_broker=False)
        for name, protocol in (("A", "SSL"), ("B", "PLAINTEXT"), ("C", "SASL_PLAINTEXT"))
    ]
    listeners = {"A": "a:1", "B": "b:1", "C": "c:1"}
    monkeypatch.delenv("TXN_COMMAND_CONFIG", raising=False)
    assert way_for_console(specs, listeners)[0] == "b:1"
    monkeypatch.setenv("TXN_COMMAND_CONFIG", str(config))
    for text, address, is_kept in (
        (SASL, "c:1", True),
        ("security.protocol=ssl", "a:1", True),
        ("client.id=x", "b:1", True),
        ("security.protocol=SASL_SSL", "b:1", False),
    ):
        config.write_text(text)
        found, environment = way_for_console(specs, listeners)
        assert (found, "TXN_COMMAND_CONFIG" in environment) == (address, is_kept)
    with pytest.raises(ConfigError, match=r"security.protocol is SSL"):
        way_for_console(specs[:1], {"A": "a:1"})
    config.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        way_for_console(specs, listeners)


def test_it_ends_if_the_broker_is_killed(tmp_path: Path) -> None:
    with broker("--data", tmp_path / "data") as (process, _):
        (console,) = consoles_of(process)
        process.kill()
        process.wait()
        console.wait(WAIT_S)


def test_the_broker_goes_on_without_its_console(tmp_path: Path) -> None:
    with broker("--data", tmp_path / "data") as (process, _):
        (console,) = consoles_of(process)
        console.kill()
        psutil.wait_procs([console], WAIT_S)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def test_a_broker_whose_console_cannot_start_ends_with_its_reason() -> None:
    for options, told in (
        (("--console", "0.0.0.0:0"), "no loopback address"),
        (
            (*LISTENS[2:], "-o", "listeners=A://127.0.0.1:0", "-o", SASL_OF_A, "-o", SCRAM),
            "--console has no way in",
        ),
    ):
        command = [sys.executable, "-m", "txn", "serve", *options]
        if "-o" not in options:
            command += ["--listen", "127.0.0.1:0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S * 2)
        assert done.returncode != 0
        assert told in done.stderr


SASL_OF_A = "listener.security.protocol.map=A:SASL_PLAINTEXT"
SCRAM = "sasl.enabled.mechanisms=SCRAM-SHA-256"
