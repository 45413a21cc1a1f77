"""The first users of a broker, which its program passes at the start."""

import secrets
from collections.abc import Mapping

from txn.broker.controller import Controller
from txn.errors import ConfigError
from txn.metadata.records import UserScramCredentialRecord
from txn.security.mechanisms import NAME_MAX
from txn.security.scram import (
    HASHES,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    credential_of,
    matches,
    salted_password,
)


def ensure_users(controller: Controller, passwords: Mapping[str, str]) -> None:
    """Give users their passwords, by every mechanism of SCRAM, durably.

    One that has its password already changes nothing, so a start does not grow the metadata.

    Raises:
        ConfigError: a name or a password cannot be used.
        StorageError: the credentials cannot be written.
    """
    known = controller.image.scram_credentials
    missing: list[UserScramCredentialRecord] = []
    for name, password in passwords.items():
        if not name or len(name) > NAME_MAX or not password:
            raise ConfigError(f"the user {name!r} needs a name and a password")
        for number, hash_ in HASHES.items():
            record = known.get((name, number))
            if record is not None and matches(hash_, ScramCredential(*record[2:]), password):
                continue
            salt = secrets.token_bytes(SALT_BYTES)
            salted = salted_password(hash_, password, salt, ITERATIONS_MIN)
            made = credential_of(hash_, salted, salt, ITERATIONS_MIN)
            missing.append(UserScramCredentialRecord(name, number, *made))
    if missing:
        controller.alter_scram_credentials_now(missing)
