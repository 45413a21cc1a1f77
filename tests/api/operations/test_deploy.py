"""The files of deploy/: the unit of systemd starts, is told, reloads and stops; the image's words
are those of `txn serve`."""

import inspect
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import pytest

import txn
from support.command_line import run_txn
from support.deployed import PASSWORD, add_admin, listener_of, metrics_of, settings_in
from txn.cli.plain_serve import read_plain_serve

ROOT: Final = Path(__file__).parents[3]
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
    return settings_in(tmp_path, tmp_path / "data")


def use(config: Path) -> None:
    """Commit a transaction as the unit's `admin`, and read it."""
    issuer = config.parent / "tls"
    settings = {
        "bootstrap.servers": listener_of(config),
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(issuer / "ca.pem"),
    }
    with txn.Producer(settings, transactional_id="loader") as producer, producer.transaction() as t:
        t.produce("orders", b"1")
    consumer = txn.Consumer(settings, group_id="shop", auto_offset_reset="earliest")
    consumer.subscribe(["orders"])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.value() == b"1"
    consumer.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        yield manager


MEMORY_DENY_WRITE_EXECUTE: Final = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE: kept over exec
    sys.exit(f"PR_SET_MDWE: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
"""

TOOLS: Final = ("strace", "setpriv", "systemd-analyze")


def sandbox(trace: Path) -> list[str]:
    """A prefix of the unit's command: its rights, as far as one process can have them taken.

    The rest needs a service manager: file systems that are read-only or hidden, its own /tmp. The
    trace tells whether system calls are within the unit's filter.
    """
    return [
        *("strace", "-D", "-f", "-qq", "-s", "0", "-o", str(trace)),
        *("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        *(sys.executable, "-c", MEMORY_DENY_WRITE_EXECUTE),
    ]


def calls_in(trace: Path) -> dict[str, set[str]]:
    """System call → the beginnings of its arguments, from the one that starts the broker on."""
    lines = trace.read_text().splitlines()
    starts = [at for at, line in enumerate(lines) if " execve(" in line]
    found: dict[str, set[str]] = {}
    for line in lines[starts[-1] :]:
        call = re.match(r"\d+ +(\w+)\(([^,)]*)", line)
        if call is not None:
            found.setdefault(call[1], set()).add(call[2])
    return found


def allowed_calls(*filters: str) -> set[str]:
    """The system calls of groups such as `@system-service`."""
    found: set[str] = set()
    for name in filters:
        told = subprocess.run(
            ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
        )
        words = {line.split("#")[0].strip() for line in told.stdout.splitlines()[1:]} - {""}
        found |= {word for word in words if not word.startswith("@")}
        found |= allowed_calls(*(word for word in words if word.startswith("@")))
    return found


@pytest.mark.skipif(
    os.geteuid() != 0 or None in map(shutil.which, TOOLS), reason=f"needs root and {TOOLS}"
)
def test_the_unit_serves_within_its_sandbox(
    tmp_path: Path, config: Path, manager: socket.socket
) -> None:
    trace = tmp_path / "trace"
    run_unit(tmp_path, config, manager, sandbox(trace))
    calls = calls_in(trace)
    assert {"epoll_wait", "accept4", "fdatasync", "sendto"} <= calls.keys()
    wanted = [line for line in UNIT["SystemCallFilter"] if not line.startswith("~")]
    refused = [line[1:] for line in UNIT["SystemCallFilter"] if line.startswith("~")]
    assert calls.keys() - (allowed_calls(*wanted) - allowed_calls(*refused)) == set()
    assert calls["socket"] <= set(UNIT["RestrictAddressFamilies"][0].split())
    assert "personality" not in calls


def test_the_unit_starts_is_told_reloads_and_stops(
    tmp_path: Path, config: Path, manager: socket.socket
) -> None:
    run_unit(tmp_path, config, manager, [])


def run_unit(tmp_path: Path, config: Path, manager: socket.socket, prefix: list[str]) -> None:
    """Start the unit's command behind a prefix, with the unit's environment; reload and stop it."""
    state = tmp_path / "state"
    add_admin(config, state)
    line = UNIT["ExecStart"][0].replace("${STATE_DIRECTORY}", str(state))
    line = line.replace(INSTALLED, COMMAND).replace("/etc/txn/server.properties", str(config))
    command = [*prefix, *shlex.split(line)]
    limit = min(int(UNIT["LimitNOFILE"][0]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    log = tmp_path / "log"
    with log.open("wb") as errors:
        broker = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={
                "PATH": os.environ["PATH"],
                "LANG": "C.UTF-8",
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
                "STATE_DIRECTORY": str(state),
                "JOURNAL_STREAM": stream_of(errors),
            },
            umask=int(UNIT["UMask"][0], 8),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        )
    try:
        assert manager.recv(100) == b"READY=1", log.read_text()
        use(config)
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
    told = log.read_text().splitlines()
    assert [line for line in told if re.match(r"<[46]>20\d\d-", line) is None] == []


def stream_of(file: IO[bytes]) -> str:
    """JOURNAL_STREAM of a process whose standard error is the file."""
    found = os.fstat(file.fileno())
    return f"{found.st_dev}:{found.st_ino}"


@pytest.mark.parametrize("is_journal", [True, False])
def test_lines_have_a_priority_in_the_journal_alone(tmp_path: Path, is_journal: bool) -> None:
    """Every line was of priority 6 there, so `journalctl -p warning` showed no warning."""
    program = """
        from txn.logs import log, show_on_stderr
        show_on_stderr()
        log.info("one.state")
        log.warning("one.look")
        try:
            raise ValueError("two\\nlines")
        except ValueError:
            log.exception("one.bug")
    """
    with (tmp_path / "log").open("w+b") as errors:
        stream = stream_of(errors) if is_journal else "1:2"
        subprocess.run(
            [sys.executable, "-c", inspect.cleandoc(program)],
            stderr=errors,
            env={**os.environ, "JOURNAL_STREAM": stream},
            check=True,
        )
    lines = (tmp_path / "log").read_text().splitlines()
    prefixes = [(re.findall(r"^<(\d)>", line) or [""])[0] for line in lines]
    assert len(lines) > 5
    expected = ["6", "4", *("3" for _ in lines[2:])] if is_journal else [""] * len(lines)
    assert prefixes == expected


def test_a_service_manager_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import signal, txn.server.lifecycle.serve as serve\n"
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


def test_the_image_is_built_in_the_format_that_has_health_checks() -> None:
    """Podman left HEALTHCHECK out, with a warning: its own format of images has none."""
    assert of_last_stage("HEALTHCHECK") != []
    for page in ("README.md", "Containerfile"):
        (build,) = re.findall(
            r"podman build .*-f deploy/Containerfile", (DEPLOY / page).read_text()
        )
        assert "--format docker" in build


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


def test_the_images_health_check_knows_a_broker_that_answers_from_one_that_does_not(
    tmp_path: Path, config: Path
) -> None:
    data = tmp_path / "data"
    add_admin(config, data)
    (entry,), (command,) = of_last_stage("ENTRYPOINT"), of_last_stage("CMD")
    (volume,) = of_last_stage("VOLUME")
    here = {
        "/etc/txn/server.properties": str(config),
        json.loads(volume)[0]: str(data),
        "127.0.0.1:9308": metrics_of(config),
    }
    words = [here.get(word, word) for word in json.loads(entry) + json.loads(command)]
    (check,) = of_last_stage("HEALTHCHECK")
    health = json.loads(check.partition("CMD")[2].replace("127.0.0.1:9308", metrics_of(config)))
    broker = subprocess.Popen(
        [*shlex.split(COMMAND), *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert broker.stdout is not None
    with broker.stdout as output:
        assert output.readline().startswith(b"listening on ")
        assert run_check(health) == 0
        use(config)
        (signal_name,) = of_last_stage("STOPSIGNAL")
        broker.send_signal(signal.Signals[signal_name])
        assert broker.wait(WAIT_S) == 0
    assert run_check(health) != 0


def run_check(command: list[str]) -> int:
    """Run the image's health check by this Python; return its exit code."""
    assert command[0] == "python"
    done = subprocess.run([sys.executable, *command[1:]], stderr=subprocess.DEVNULL, timeout=WAIT_S)
    return done.returncode
