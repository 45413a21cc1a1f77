"""A real Prometheus on loopback, where its binary is on the PATH."""

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from harnesses.peers.kafka import free_port

WAIT_S: Final = 90.0
SCRAPE: Final = "500ms"


def is_here() -> bool:
    """True if `prometheus` and `promtool` are on the PATH."""
    return None not in (shutil.which("prometheus"), shutil.which("promtool"))


class Prometheus:
    """The HTTP API of a running Prometheus."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._root}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def api(self, path: str, **wanted: str) -> Any:
        query = f"?{urllib.parse.urlencode(wanted)}" if wanted else ""
        with urllib.request.urlopen(f"{self._root}/api/v1/{path}{query}", timeout=20) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant vector, now."""
        data = self.api("query", query=expression)
        assert data["resultType"] == "vector", expression
        found: list[dict[str, Any]] = data["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.api("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> dict[str, str]:
        """Address → `up`, `down` or `unknown`."""
        found = self.api("targets", state="active")["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in found}

    def firing(self) -> dict[str, list[dict[str, Any]]]:
        """The alerts that fire, by name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self.api("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found


def config(targets: Sequence[str], rules: Sequence[Path]) -> Mapping[str, Any]:
    """A `prometheus.yml` of job `txn`; JSON is YAML."""
    return {
        "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "txn", "static_configs": [{"targets": list(targets)}]}],
    }


@contextmanager
def prometheus(place: Path, targets: Sequence[str], rules: Sequence[Path]) -> Iterator[Prometheus]:
    """Run one in an empty directory, until the end of the block."""
    port = free_port()
    (place / "prometheus.yml").write_text(json.dumps(config(targets, rules)))
    command = [
        *("prometheus", f"--config.file={place / 'prometheus.yml'}"),
        *(f"--storage.tsdb.path={place / 'data'}", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}
        )
    try:
        running = Prometheus(port)
        wait_for(lambda: running.is_ready() or process.poll() is not None)
        assert process.poll() is None, (place / "log").read_text()[-2000:]
        yield running
    finally:
        process.terminate()
        process.wait(WAIT_S)


def wait_for(holds: Callable[[], bool], seconds: float = WAIT_S) -> bool:
    """Wait until something holds; False if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
