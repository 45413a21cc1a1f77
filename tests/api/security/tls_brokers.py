"""Requests over TLS, failed handshakes as a broker counts them, and stores of certificates."""

import re
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from kio.schema.metadata.v12.request import MetadataRequest

import txn
from support.certificates import TlsConnection
from support.clients import (
    WAIT_S,
)

METRICS = "127.0.0.1:0"
INVALID_REQUEST = 42
METADATA = MetadataRequest(topics=(), include_topic_authorized_operations=False)


def address(broker: txn.Broker) -> str:
    return broker.listeners["SSL"]


def failures(broker: txn.Broker) -> dict[str, int]:
    """The failed handshakes so far, by reason."""
    assert broker.metrics_address is not None
    with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=WAIT_S) as page:
        text = page.read().decode()
    counted = re.findall(r'txn_tls_failed_handshakes_total{.*reason="(\w+)"} ([1-9].*)', text)
    return {reason: int(float(count)) for reason, count in counted}


def await_failure(broker: txn.Broker, reason: str) -> None:
    await_true(lambda: reason in failures(broker), lambda: str(failures(broker)))


def await_true(look: Callable[[], bool], told: Callable[[], str] = str) -> None:
    end = time.monotonic() + WAIT_S
    while not look():
        assert time.monotonic() < end, told()
        time.sleep(0.01)


def ask_metadata(servers: str, context: ssl.SSLContext) -> str:
    """The cluster's id, asked over TLS."""
    with TlsConnection(servers, context) as connection:
        return str(connection.call(METADATA).cluster_id)


def refusal_of(servers: str, settings: dict[str, Any]) -> str:
    """The error of librdkafka, which cannot connect."""
    told: list[KafkaError] = []
    config: dict[str, Any] = {"bootstrap.servers": servers, "error_cb": told.append, **settings}
    admin = AdminClient(config | {"log_level": 0})
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
        admin.list_topics(timeout=2)
    admin.poll(0.1)
    return " ".join(str(error) for error in told)


def as_pkcs12(pem: Path, place: Path) -> Path:
    """Write a PEM file's key and certificates as PKCS12, or its certificates to be trusted."""
    content = pem.read_bytes()
    certificates = x509.load_pem_x509_certificates(content)
    key = None
    if b"PRIVATE KEY" in content:
        loaded = serialization.load_pem_private_key(content, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
        key = loaded
    own, others = (certificates[0], certificates[1:]) if key else (None, certificates)
    encryption = serialization.BestAvailableEncryption(b"s3cret")
    place.touch(mode=0o600)
    packed = pkcs12.serialize_key_and_certificates(b"broker", key, own, others, encryption)
    place.write_bytes(packed)
    return place
