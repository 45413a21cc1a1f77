"""Java's clients over TLS, and the subjects of certificates as Java writes them."""

import subprocess
from pathlib import Path

import pytest

import txn
from harnesses.peers.jars import java_executable
from interop.test_admin_tools import run
from support.certificates import Issuer, principals_of

SECONDS_MAX = 120.0
TOPICS = "org.apache.kafka.tools.TopicCommand"
PROGRAM = Path(__file__).parent / "java" / "Subject.java"

NAMES = [
    "alice",
    "Müller & Söhne",
    'a,b=c+d<e>f#g;h"i\\j',
    "#first",
    "  spaces  ",
    "a  b",
    "ünï🙂",
]

pytestmark = [pytest.mark.java, pytest.mark.timeout(3 * SECONDS_MAX)]


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_javas_client_speaks_both_versions_with_a_client_certificate(
    tmp_path: Path, protocol: str
) -> None:
    issuer = Issuer(tmp_path)
    client = issuer.issue("client")
    keystore = tmp_path / "java.pem"
    command = ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", str(client)]
    key = subprocess.run(command, check=True, capture_output=True).stdout  # Java wants PKCS#8
    keystore.write_bytes(
        key + client.read_bytes().partition(b"KEY-----\n")[2].partition(b"KEY-----\n")[2]
    )
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SSL\n"
        f"ssl.enabled.protocols={protocol}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={issuer.path}\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={keystore}\n"
    )
    with txn.Broker(properties=issuer.broker(issuer.issue("broker"), "required")) as broker:
        servers = broker.listeners["SSL"]
        arguments = ("--command-config", str(config))
        run(TOPICS, servers, *arguments, "--create", "--topic", "by-java")
        assert run(TOPICS, servers, *arguments, "--list").split()[-1] == "by-java"


def test_a_subject_is_written_as_java_writes_it(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    clients = [
        issuer.issue(
            f"client-{at}",
            common_name=name,
            organization_name=name[::-1],
            organization_unit_name="Sales, East",
        )
        for at, name in enumerate(NAMES)
    ]
    certificates = []
    for client in clients:
        _, begin, rest = client.read_text().partition("-----BEGIN CERTIFICATE-----")
        certificates.append(client.with_suffix(".crt"))
        certificates[-1].write_text(begin + rest)
    command = [java_executable(), str(PROGRAM), *map(str, certificates)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX)
    expected = [f"User:{line}" for line in done.stdout.decode().split("\n")[:-1]]
    assert principals_of(issuer, clients) == expected
