"""The files of deploy/: the unit of systemd starts, is told, reloads and stops; the image's words
are those of `txn serve`."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.certificates import Issuer
from support.command_line import run_txn
from txn.cli.plain_serve import read_plain_serve

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
INSTALLED: Final = "/opt/txn/bin/txn"
COMMAND: Final = f"{sys.executable} -m txn"
WAIT_S: Final = 30


def settings_of(unit: Path) -> dict[str, list[str]]:
    """The lines NAME=VALUE of a unit, by name."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            found.setdefault(name, []).append(value)
    return found


UNIT: Final = settings_of(DEPLOY / "txn.service")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """deploy/server.properties with a certificate, free ports and the name of this machine."""
    certificate = Issuer(tmp_path / "tls").issue("broker")
    text = (DEPLOY / "server.properties").read_text()
    text = text.replace("/etc/txn/broker.pem", str(certificate))
    text = text.replace("CLIENTS://:9092", "CLIENTS://127.0.0.1:0").replace(":9308", ":0")
    text = text.replace("/var/lib/txn", str(tmp_path / "data"))
    path = tmp_path / "server.properties"
    path.write_text(text)
    return path


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        yield manager


def test_the_unit_starts_is_told_reloads_and_stops(
    tmp_path: Path, config: Path, manager: socket.socket
) -> None:
    state = tmp_path / "state"
    line = UNIT["ExecStart"][0].replace("${STATE_DIRECTORY}", str(state))
    line = line.replace(INSTALLED, COMMAND).replace("/etc/txn/server.properties", str(config))
    command = shlex.split(line)
    log = tmp_path / "log"
    with log.open("wb") as errors:
        broker = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
    try:
        assert manager.recv(100) == b"READY=1"
        assert UNIT["ExecReload"] == ["kill -HUP $MAINPID"]
        loaded = log.read_text().count("tls.certificate_loaded")
        broker.send_signal(signal.SIGHUP)
        while log.read_text().count("tls.certificate_loaded") == loaded:
            assert broker.poll() is None
        broker.send_signal(signal.SIGTERM)
        assert manager.recv(100) == b"STOPPING=1"
        assert broker.wait(WAIT_S) == 0
    finally:
        broker.kill()
        broker.wait()
    assert (state / ".kafka_cleanshutdown").is_file()  # --data of the unit, not the file's log.dirs
    assert not (tmp_path / "data").exists()


def test_a_service_manager_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import signal, txn.server.serve as serve\n"
            "serve._greeting = lambda _: signal.raise_signal(signal.SIGTERM) or ''\n"
            f"serve.serve({str(tmp_path / 'data')!r}, '127.0.0.1:0', None, None, ())",
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "nobody")},
    )
    assert done.returncode == 0, done.stderr
    assert "service_manager.not_told state=READY=1" in done.stderr.replace('"', "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit_without_a_word(tmp_path: Path) -> None:
    unit = tmp_path / "txn.service"
    text = (DEPLOY / "txn.service").read_text()
    unit.write_text(text.replace(INSTALLED, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_units_broker_has_no_right_that_it_can_do_without() -> None:
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute"):
        assert UNIT[name] == ["yes"]
    assert UNIT["ProtectSystem"] == ["strict"]
    assert UNIT["CapabilityBoundingSet"] == [""]
    assert UNIT["StateDirectoryMode"] == ["0700"]
    assert "ProcSubset" not in UNIT  # the boot id of the machine is read from /proc/sys


def test_the_settings_are_sound_and_let_nobody_in_unknown(config: Path) -> None:
    code, out, err = run_txn("serve", "--config", config, "--check", "--json")
    assert code == 0, err
    settings = {one["name"]: one["value"] for one in json.loads(out)["settings"]}
    assert settings["listener.security.protocol.map"] == "CLIENTS:SASL_SSL"
    assert settings["authorizer.class.name"].endswith("StandardAuthorizer")


# ---------------------------------------------------------------- the image

LINES: Final = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text()).splitlines()
STEPS: Final = [tuple(line.split(None, 1)) for line in LINES if line and not line.startswith("#")]


def of_last_stage(instruction: str) -> list[str]:
    last = max(at for at, step in enumerate(STEPS) if step[0] == "FROM")
    return [rest for name, rest in STEPS[last:] if name == instruction]


def test_the_images_command_is_one_that_txn_takes() -> None:
    (entry,), (command,) = of_last_stage("ENTRYPOINT"), of_last_stage("CMD")
    assert json.loads(entry) == ["txn"]
    asked = read_plain_serve(json.loads(command))
    assert asked is not None
    assert str(asked.config) == "/etc/txn/server.properties"
    (volume,) = of_last_stage("VOLUME")
    assert json.loads(volume) == [str(asked.data)]
    (check,) = of_last_stage("HEALTHCHECK")
    assert f"http://{asked.metrics}/healthz" in json.loads(check.partition("CMD")[2])[2]


def test_the_image_runs_as_nobody_in_particular_and_is_built_of_files_that_are_there() -> None:
    assert of_last_stage("USER") == ["65532:65532"]
    assert of_last_stage("STOPSIGNAL") == ["SIGTERM"]
    copied = [rest.split()[:-1] for name, rest in STEPS if name == "COPY" and "--from" not in rest]
    missing = [path for paths in copied for path in paths if not (ROOT / path).exists()]
    assert missing == []
    stages = {rest.split(" AS ")[1] for name, rest in STEPS if name == "FROM" and " AS " in rest}
    used = {rest.split()[0] for name, rest in STEPS if name == "COPY" and "--from" in rest}
    assert {stage.removeprefix("--from=") for stage in used} <= stages
