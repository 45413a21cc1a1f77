"""The real Java client, version by version, against txn's broker and against Apache Kafka.

`java/JavaClient.java` is the program and its own judge. The run against Apache Kafka shows that
Kafka meets its demands.
"""

import subprocess
from pathlib import Path

import pytest

from peers.jars import CLIENTS_3_7, CLIENTS_3_9, NODE_4_2, JarSet, class_path, java_executable

PROGRAM = Path(__file__).parent / "java" / "JavaClient.java"
SECONDS_MAX = 240.0

pytestmark = [pytest.mark.java, pytest.mark.timeout(SECONDS_MAX + 60)]


@pytest.mark.parametrize(
    "jars",
    [
        pytest.param(NODE_4_2, id="clients-4.2.0"),
        pytest.param(CLIENTS_3_9, id="clients-3.9.2"),
        pytest.param(CLIENTS_3_7, id="clients-3.7.2"),
    ],
)
def test_every_step_of_the_java_client_holds(bootstrap: str, jars: JarSet) -> None:
    done = subprocess.run(
        [
            java_executable(),
            "-Xmx256m",
            *("-Dlog4j2.level=OFF", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
            *("-cp", class_path(jars), str(PROGRAM), bootstrap),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert done.stdout.splitlines()[-1] == "ok delete topics", done.stdout
