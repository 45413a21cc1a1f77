"""Certificates and keys are found in PEM and in keystores, by content and not by name."""

from pathlib import Path

import pytest

from txn.access.stores import (
    FILE_BYTES_MAX,
    certificate_pem,
    identity_pem,
    key_pem,
    trusted_pem,
)
from txn.errors import ConfigError
from txn.security.client import Store

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nBBBB\n-----END ENCRYPTED PRIVATE KEY-----\n"
SECRET = "hunter2"


def opened(content: bytes, password: str | None) -> tuple[bytes | None, bytes | None, bytes | None]:
    if content == b"keystore" and password == SECRET:
        return None, CERTIFICATE, KEY
    if content == b"truststore":
        return CERTIFICATE, None, None
    raise ValueError("it is neither PKCS12 nor JKS")


def stored(path: Path, content: bytes, password: str | None = None) -> Store:
    path.write_bytes(content)
    return Store("ssl.keystore.location", str(path), password=password)


def test_one_file_of_pem_has_certificates_and_key_in_any_order(tmp_path: Path) -> None:
    store = stored(tmp_path / "both", b"text\n" + KEY + b"\n" + CERTIFICATE + CERTIFICATE)
    assert identity_pem(store, opened) == (CERTIFICATE.strip() + b"\n" + CERTIFICATE, KEY)


def test_authorities_of_pem_leave_other_blocks_out(tmp_path: Path) -> None:
    assert trusted_pem(stored(tmp_path / "ca", KEY + CERTIFICATE), opened) == CERTIFICATE


def test_a_keystore_is_opened_with_its_password(tmp_path: Path) -> None:
    store = stored(tmp_path / "k.jks", b"keystore", SECRET)
    assert identity_pem(store, opened) == (CERTIFICATE, KEY)
    assert trusted_pem(stored(tmp_path / "t.p12", b"truststore"), opened) == CERTIFICATE


def test_a_directory_of_authorities_is_read_whole(tmp_path: Path) -> None:
    stored(tmp_path / "a.pem", CERTIFICATE)
    stored(tmp_path / "b.pem", CERTIFICATE)
    found = trusted_pem(Store("ssl.ca.location", str(tmp_path)), opened)
    assert found == CERTIFICATE + CERTIFICATE


def test_text_needs_no_file() -> None:
    store = Store("ssl.key.pem", text=KEY.decode())
    assert key_pem(store) == KEY
    assert trusted_pem(Store("ssl.ca.location", "probe"), opened) is None
    assert trusted_pem(None, opened) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory. Give a file of this machine"),
        (b"keystore", "cannot be opened: it is neither PKCS12 nor JKS. Check its password"),
        (b"truststore", "holds no key with its certificate"),
        (KEY, "holds no certificate in PEM"),
        (CERTIFICATE, "holds no private key in PEM"),
    ],
)
def test_a_file_that_does_not_serve_is_named_with_its_setting(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=told) as raised:
        identity_pem(Store("ssl.keystore.location", str(path), password="wrong-pw"), opened)
    assert str(raised.value).startswith(f"ssl.keystore.location {str(path)!r} ")
    assert "wrong-pw" not in str(raised.value)


def test_a_text_that_does_not_serve_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        certificate_pem(Store("ssl.certificate.pem", text=SECRET))
    assert str(raised.value) == "ssl.certificate.pem holds no certificate in PEM (-----BEGIN …)"


def test_a_file_that_no_bundle_of_certificates_can_be_is_refused(tmp_path: Path) -> None:
    """It was cut, and the certificates behind the cut were not trusted."""
    padding = b" " * (FILE_BYTES_MAX - len(CERTIFICATE))
    assert trusted_pem(stored(tmp_path / "ca", padding + CERTIFICATE), opened) == CERTIFICATE
    with pytest.raises(ConfigError, match=rf"ca' has more than {FILE_BYTES_MAX} bytes"):
        trusted_pem(stored(tmp_path / "ca", padding + CERTIFICATE + b" "), opened)
    with pytest.raises(ConfigError, match=rf"/dev/zero' has more than {FILE_BYTES_MAX} bytes"):
        key_pem(Store("ssl.key.location", "/dev/zero"))


def test_a_directory_with_more_than_certificates_is_refused(tmp_path: Path) -> None:
    stored(tmp_path / "a.pem", CERTIFICATE)
    store = Store("ssl.ca.location", str(tmp_path))
    stored(tmp_path / "b.pem", b" " * (FILE_BYTES_MAX - len(CERTIFICATE)))
    assert trusted_pem(store, opened) == CERTIFICATE
    stored(tmp_path / "c.pem", b" ")
    with pytest.raises(ConfigError, match=rf"has more than {FILE_BYTES_MAX} bytes"):
        trusted_pem(store, opened)
