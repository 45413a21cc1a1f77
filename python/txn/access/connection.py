"""Turns `SecuritySettings` into the security of a connection of the client in Rust."""

from typing import Final

from txn import _core
from txn.access.stores import certificate_pem, identity_pem, key_pem, trusted_pem
from txn.access.tokens import token_call
from txn.errors import ConfigError, RejectedError, TxnError
from txn.security.client import SecuritySettings
from txn.wire.error_codes import ErrorCode

AUTHENTICATION_CODES: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,  # not retriable: the handshake of TLS
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
"""Codes of a listener that rejects this client, where the error is not retriable."""


def client_security(settings: SecuritySettings) -> _core.ClientSecurity | None:
    """Return the security of connections; None for plain ones. Files are read here.

    Raises:
        ConfigError: a file cannot be read, or does not hold the thing that its setting says.
    """
    if not settings.is_encrypted and not settings.is_authenticated:
        return None
    certificate = key = trusted = None
    if settings.is_encrypted:
        trusted = trusted_pem(settings.trusted, _core.read_keystore)
        if settings.keystore is not None:
            certificate, key = identity_pem(settings.keystore, _core.read_keystore)
        elif settings.certificate is not None and settings.key is not None:
            certificate, key = certificate_pem(settings.certificate), key_pem(settings.key)
    token = settings.token
    try:
        return _core.ClientSecurity(
            settings.protocol,
            ca_pem=trusted,
            certificate_pem=certificate,
            key_pem=key,
            key_password=settings.key_password,
            check_hostname=settings.check_hostname,
            check_certificate=settings.check_certificate,
            mechanism=settings.mechanism,
            username=settings.username,
            password=settings.password,
            token=None if token is None else token_call(token, _core.read_keystore),
            extensions=dict(settings.extensions),
        )
    except ValueError as error:
        raise ConfigError(f"{error}. Correct the settings ssl.* and sasl.*") from error


def authentication_error(error: _core.KafkaError) -> TxnError | None:
    """Return the error of a log-in, a certificate or a token that fails; None for another one."""
    if isinstance(error.__cause__, TxnError):  # of the function for tokens
        return error.__cause__
    message, code, is_retriable = error.args
    if is_retriable or code not in AUTHENTICATION_CODES:
        return None
    return RejectedError(message, code=code)
