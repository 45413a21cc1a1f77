"""The real Java client, version by version, against txn's broker and against Apache Kafka.

`java/JavaClient.java` is the program and its own judge. The run against Apache Kafka shows that
Kafka meets its demands.
"""

import subprocess
from pathlib import Path

import pytest

from harnesses.peers.jars import (
    CLIENTS_3_7,
    CLIENTS_3_9,
    NODE_4_2,
    NODE_4_4,
    JarSet,
    class_path,
    java_executable,
)
from support.samples import left_out

PROGRAM = Path(__file__).parent / "java" / "JavaClient.java"
SECONDS_MAX = 240.0

pytestmark = [pytest.mark.java, pytest.mark.timeout(SECONDS_MAX + 60)]


LONG = [pytest.mark.peer, left_out]


@pytest.mark.parametrize(
    ("bootstrap", "jars", "protocol"),
    [
        pytest.param("txn", NODE_4_4, "classic", id="txn-clients-4.4.0", marks=left_out),
        pytest.param("txn", NODE_4_4, "consumer", id="txn-clients-4.4.0-consumer"),
        pytest.param("txn", NODE_4_2, "classic", id="txn-clients-4.2.0", marks=left_out),
        pytest.param("txn", NODE_4_2, "consumer", id="txn-clients-4.2.0-consumer", marks=left_out),
        pytest.param("txn", CLIENTS_3_9, "classic", id="txn-clients-3.9.2"),
        pytest.param("txn", CLIENTS_3_7, "classic", id="txn-clients-3.7.2", marks=left_out),
        pytest.param("kafka", NODE_4_4, "classic", id="kafka-clients-4.4.0", marks=LONG),
        pytest.param("kafka", NODE_4_4, "consumer", id="kafka-clients-4.4.0-consumer", marks=LONG),
        pytest.param("kafka", CLIENTS_3_9, "classic", id="kafka-clients-3.9.2", marks=LONG),
    ],
    indirect=["bootstrap"],
)
def test_every_step_of_the_java_client_holds(bootstrap: str, jars: JarSet, protocol: str) -> None:
    done = subprocess.run(
        [
            java_executable(),
            "-Xmx256m",
            *("-Dlog4j2.level=OFF", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
            *("-cp", class_path(jars), str(PROGRAM), bootstrap, protocol),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert done.stdout.splitlines()[-1] == "ok delete topics", done.stdout
