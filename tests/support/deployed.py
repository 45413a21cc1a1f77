"""The settings file of deploy/ in a directory that stands for a machine, and its first user."""

from pathlib import Path
from typing import Final

from harnesses.peers.kafka import free_port
from support.certificates import Issuer
from support.command_line import run_txn

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PASSWORD: Final = "a password"


def settings_in(place: Path, data: Path) -> Path:
    """deploy/server.properties with a certificate and free ports on loopback; return its path."""
    text = (DEPLOY / "server.properties").read_text()
    port = free_port()
    for written, here in {
        "/etc/txn/broker.pem": str(Issuer(place / "tls").issue("broker")),
        "CLIENTS://:9092": f"CLIENTS://127.0.0.1:{port}",
        "broker.example.com:9092": f"127.0.0.1:{port}",
        "127.0.0.1:9308": f"127.0.0.1:{free_port()}",
        "/var/lib/txn": str(data),
    }.items():
        assert written in text, written
        text = text.replace(written, here)
    path = place / "server.properties"
    path.write_text(text)
    return path


def listener_of(config: Path) -> str:
    """HOST:PORT of the listener of clients."""
    return _value(config, "listeners").removeprefix("CLIENTS://")


def metrics_of(config: Path) -> str:
    """HOST:PORT of /metrics and of the probes."""
    return _value(config, "metrics.listener")


def add_admin(config: Path, data: Path) -> None:
    """Add the super user of the file to a data directory, which is made."""
    file = config.parent / "password"
    file.write_text(PASSWORD)
    words = ("users", "add", "admin", "--config", config, "--data", data, "--password-file", file)
    code, _, errors = run_txn(*words)
    assert code == 0, errors


def _value(config: Path, name: str) -> str:
    lines = config.read_text().splitlines()
    (found,) = [line for line in lines if line.startswith(f"{name}=")]
    return found.removeprefix(f"{name}=")
