"""Reads certificates and keys from files and settings, and returns them as PEM.

A file is PEM or a keystore (PKCS12 or JKS); its content decides, not its name. The process that
opens a client reads the file at that moment.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from txn.errors import ConfigError
from txn.security.client import Store

FILE_BYTES_MAX: Final = 16 << 20
"""Larger than every bundle of authorities, and than all files of a directory of them; a wrong path
may be a disk image, or a device that has no end."""

PROBE: Final = "probe"
"""librdkafka's ssl.ca.location for the system's authorities."""

_BEGIN: Final = b"-----BEGIN "
_CERTIFICATES: Final = re.compile(
    rb"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----.*?-----END \1-----", re.DOTALL
)
_KEY: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)

Opened = tuple[bytes | None, bytes | None, bytes | None]
"""The content of a keystore: authorities, the certificate with its chain, and the key."""

OpenKeystore = Callable[[bytes, str | None], Opened]


def trusted_pem(store: Store | None, open_keystore: OpenKeystore) -> bytes | None:
    """Return the authorities to trust; None: the system's.

    Raises:
        ConfigError: the file cannot be read, or has none.
    """
    if store is None or (store.location or "").strip().lower() == PROBE:
        return None
    content = content_of(store)
    if _BEGIN in content:
        return _blocks(_CERTIFICATES, content, store, "certificate")
    authorities, chain, _ = _opened(store, content, open_keystore)
    found = authorities or chain
    if found is None:
        raise _fault(store, "holds no certificate. Give the file with the authorities")
    return found


def identity_pem(store: Store, open_keystore: OpenKeystore) -> tuple[bytes, bytes]:
    """Return the certificate with its chain and the key of one file.

    Raises:
        ConfigError: the file cannot be read, or lacks one of the two.
    """
    content = content_of(store)
    if _BEGIN in content:
        return _blocks(_CERTIFICATES, content, store, "certificate"), key_pem(store)
    _, chain, key = _opened(store, content, open_keystore)
    if chain is None or key is None:
        raise _fault(
            store,
            "holds no key with its certificate. Give the store of the client, not that of "
            "the authorities",
        )
    return chain, key


def certificate_pem(store: Store) -> bytes:
    """Return a certificate with its chain. Raises ConfigError: there is none."""
    return _blocks(_CERTIFICATES, content_of(store), store, "certificate")


def key_pem(store: Store) -> bytes:
    """Return a private key, encrypted as it is. Raises ConfigError: there is none."""
    return _blocks(_KEY, content_of(store), store, "private key")


def content_of(store: Store) -> bytes:
    """Return a setting's text, or the bytes of its file, or of the files of its directory.

    Raises:
        ConfigError: nothing can be read there.
    """
    if store.text is not None:
        return store.text.encode()
    assert store.location is not None, "a store has a text or a location"
    path = Path(store.location.removeprefix("file://"))
    try:
        if path.is_dir():
            return _content_within(path, store)
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is none"
        raise _fault(store, f"cannot be read: {reason}. Give a file of this machine") from None
    if len(content) > FILE_BYTES_MAX:
        raise _too_large(store)
    return content


def _content_within(directory: Path, store: Store) -> bytes:
    """The bytes of the files of a store's directory. Raises OSError, or ConfigError."""
    contents: list[bytes] = []
    left = FILE_BYTES_MAX
    for path in sorted(directory.iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                contents.append(file.read(left + 1))
            left -= len(contents[-1])
        if left < 0:
            raise _too_large(store)
    return b"\n".join(contents)


def _opened(store: Store, content: bytes, open_keystore: OpenKeystore) -> Opened:
    try:
        return open_keystore(content, store.password)
    except ValueError as error:
        raise _fault(
            store,
            f"cannot be opened: {error}. Check its password (ssl.truststore.password, "
            "ssl.keystore.password), or convert it to PEM",
        ) from None


def _blocks(pattern: re.Pattern[bytes], content: bytes, store: Store, what: str) -> bytes:
    blocks = [found[0] for found in pattern.finditer(content)]
    if not blocks:
        raise _fault(store, f"holds no {what} in PEM (-----BEGIN …)")
    return b"\n".join(blocks) + b"\n"


def _too_large(store: Store) -> ConfigError:
    return _fault(
        store,
        f"has more than {FILE_BYTES_MAX} bytes, which no certificates have. Give the file or the "
        "directory of the certificates",
    )


def _fault(store: Store, rest: str) -> ConfigError:
    place = "" if store.location is None else f" {store.location!r}"
    return ConfigError(f"{store.setting}{place} {rest}", property=store.setting)
