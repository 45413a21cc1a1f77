"""What `pip install txn` gives: the wheel, alone in an empty environment.

Deselect with `-m "not wheel"`: it compiles in release mode and installs from the registry.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

CHECKOUT = Path(__file__).parent.parent

PROGRAM = """
import confluent_kafka
import txn

with txn.Broker() as broker:
    servers = broker.bootstrap_servers
    with txn.Producer(bootstrap_servers=servers, transactional_id="wheel") as producer:
        try:
            with producer.transaction() as t:
                t.produce("out", b"aborted")
                raise KeyError
        except KeyError:
            pass
        with producer.transaction() as t:
            t.produce("out", b"committed")
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
    })
    consumer.subscribe(["out"])
    message = consumer.poll(30)
    print(txn.__file__)
    print(message.value() if message is not None else "nothing came")
    consumer.close()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel and what it asks for."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "maturin", "build", "--release", "--out", str(place)]
    run(build, cwd=CHECKOUT)
    (wheel,) = place.glob("txn-*.whl")
    venv.create(place / "env", with_pip=True)
    python = place / "env" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", wheel], cwd=place)
    return place / "env"


def test_the_wheel_runs_a_broker_and_a_transaction(environment: Path) -> None:
    output = run([environment / "bin" / "python", "-I", "-c", PROGRAM], cwd=environment)

    where, what = output.splitlines()[-2:]
    assert Path(where).is_relative_to(environment), where
    assert what == "b'committed'"


def test_the_wheel_brings_the_command(environment: Path) -> None:
    assert "serve" in run([environment / "bin" / "txn", "--help"], cwd=environment)


def run(command: Sequence[str | Path], *, cwd: Path) -> str:
    """Run to success, away from what this interpreter was told to import; return the output."""
    done = subprocess.run(
        command, cwd=cwd, env=clean(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if not k.startswith("PYTHON")}
