"""The alternative names of a listener's certificate, also those that break the rules of a name."""

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

import txn
from support.certificates import TlsConnection
from txn import _core

DNS, UMLAUT, X400 = b"\x82\x01a", b"\x82\x05b\xc3\xbcro", b"\xa3\x02\x30\x00"
"""Names as DER: `a` of DNS; `büro` of DNS, which has ASCII names alone; an X.400 address."""

OTHER = b"\xa0\x0e\x06\x0a" + bytes.fromhex("2b060104018237140203") + b"\x05\x00"
"""A name of another kind, whose value lacks the tag that it has to have."""


def certificate_of(names: bytes) -> bytes:
    """A key and its certificate, whose alternative names are these bytes, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.datetime.now(datetime.UTC)
    extension = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, names)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(pem, form, plain) + certificate.public_bytes(pem)


@pytest.mark.parametrize(
    ("extension", "names"),
    [
        (b"\x30\x03" + DNS, [DNS]),
        (b"\x30\x0a" + DNS + UMLAUT, [DNS, UMLAUT]),
        (b"\x30\x07" + X400 + DNS, [X400, DNS]),
        (b"\x30\x10" + OTHER, [OTHER]),
        (b"\x30\x00", []),
        (b"\x30\x02" + DNS[:2], [b"\x30\x02" + DNS[:2]]),
    ],
    ids=("dns", "umlaut", "x400", "other", "none", "cut"),
)
def test_a_certificate_serves_with_any_alternative_names_and_tells_their_bytes(
    extension: bytes, names: list[bytes]
) -> None:
    """A name that could not be decoded made the certificate a damaged one."""
    pem = certificate_of(extension)
    versions = ["TLSv1.2", "TLSv1.3"]
    context = _core.TlsContext((pem, pem, None, b"", "none", versions, ()), str)
    assert context.identity == ("CN=broker", names)


def test_a_listener_with_a_name_beyond_ascii_is_reached(tmp_path: Path) -> None:
    certificate = tmp_path / "broker.pem"
    certificate.touch(mode=0o600)
    certificate.write_bytes(certificate_of(b"\x30\x0a" + DNS + UMLAUT))
    properties = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(certificate)}
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        txn.Broker(properties=properties) as broker,
        TlsConnection(broker.bootstrap_servers, context) as connection,
    ):
        assert connection.socket.getpeername()
