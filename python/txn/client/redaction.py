"""Removes a client's secrets from librdkafka's texts.

The text with which a broker refuses a log-in, or an endpoint a token, may repeat the secret that
was sent. librdkafka passes the text on, in its log and its errors.

| secret | known by |
|---|---|
| a password, a key, the secret of a client | the settings |
| a token of the program's `oauth_cb`, or of txn's | its return; the last two |
| a token that librdkafka has fetched itself | its form, that of a JSON Web Token |

A secret of fewer than eight characters may be a part of any word or address. So it is replaced only
where it stands alone; else a password of one letter would make every message unreadable.
"""

import base64
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final
from urllib.parse import quote_plus

from confluent_kafka import KafkaError

from txn.client.callbacks import keeping_fatal_error
from txn.security.client_names import SECRETS

HIDDEN: Final = "…"

PREFIX_MAX: Final = 16
"""Such a part of a secret identifies it: librdkafka cuts a text off at 512 bytes, and with it a
token."""

WHOLE_BELOW: Final = 8
"""A secret of fewer characters is replaced only where it is a whole value."""

JSON_WEB_TOKEN: Final = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*")


class Redaction:
    """The secrets of one client, by its settings in librdkafka's names."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        given = {name: str(value) for name, value in settings.items() if value is not None}
        found = {given[name] for name in SECRETS & given.keys()}
        found |= {quote_plus(secret) for secret in found}
        client = given.get("sasl.oauthbearer.client.id", "")
        secret = given.get("sasl.oauthbearer.client.secret", "")
        if secret:
            found.add(base64.b64encode(f"{client}:{secret}".encode()).decode())
        self._secrets = tuple(found - {""})
        self._tokens: tuple[str, ...] = ()

    def watch(self, settings: dict[str, object]) -> None:
        """Note the tokens that `oauth_cb` returns, and hide the secrets from `logger`."""
        logger = settings.get("logger")
        if logger is not None:
            settings["logger"] = _RedactedLogger(logger, self.text)
        call = settings.get("oauth_cb")
        if not callable(call):
            return
        function = call

        @wraps(function)  # `native.py` asks which function it is
        def ask(*given: Any) -> object:
            answer: object = function(*given)
            if isinstance(answer, tuple) and answer and isinstance(answer[0], str) and answer[0]:
                self._tokens = (answer[0], *self._tokens[:1])  # for threads: in one step
            return answer

        settings["oauth_cb"] = ask

    def text(self, text: str) -> str:
        """Return a text with `HIDDEN` in the place of each secret."""
        for secret in sorted((*self._secrets, *self._tokens), key=len, reverse=True):
            without = _without_value if len(secret) < WHOLE_BELOW else _without
            text = without(text, secret)
        return JSON_WEB_TOKEN.sub(HIDDEN, text)

    def error(self, error: KafkaError) -> KafkaError:
        """Return an error with the same code and marks, without secrets in its text."""
        said = error.str()
        text = self.text(said)
        if text == said:
            return error
        return KafkaError(
            error.code(),
            text,
            fatal=error.fatal(),
            retriable=error.retriable(),
            txn_requires_abort=error.txn_requires_abort(),
        )


class _RedactedLogger:
    """A logger as confluent-kafka wants it: it calls nothing but `log`, found in the class."""

    def __init__(self, logger: Any, redacted: Callable[[str], str]) -> None:
        self._logger = logger
        self._redacted = redacted

    @keeping_fatal_error
    def log(self, level: int, form: str, *texts: str) -> None:
        self._logger.log(level, form, *map(self._redacted, texts))


def _without(text: str, secret: str) -> str:
    """Replace a secret, or the part of it with which the text was cut off, wherever it is."""
    at = text.find(secret[:PREFIX_MAX])
    while at >= 0:
        end = at + _shared(text[at:], secret)
        text = text[:at] + HIDDEN + text[end:]
        at = text.find(secret[:PREFIX_MAX], at + len(HIDDEN))
    return text


def _without_value(text: str, secret: str) -> str:
    """Replace a short secret where it is neither a part of a word nor of an address or a path."""
    alone = rf"(?<![\w./@+%-]){re.escape(secret)}(?![\w/@+%-]|[.:]\w)"
    return re.sub(alone, HIDDEN, text)


def _shared(text: str, secret: str) -> int:
    """The number of characters at the begin of both."""
    pairs = zip(text, secret, strict=False)
    differing = (at for at, (one, other) in enumerate(pairs) if one != other)
    return next(differing, min(len(text), len(secret)))
