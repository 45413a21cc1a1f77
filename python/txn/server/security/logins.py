"""Log-ins of clients: SaslHandshake and SaslAuthenticate on the SASL listeners of a broker, and an
ApiVersions that comes out of order there.

`txn.security.login` decides, and this module carries out its steps and passes the principal of a
client to the sockets. A refused client gets its answer after a delay and is disconnected then; no
other client waits. Each failure is counted, and logged at most once a second.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from txn import _core
from txn.clock import monotonic_ms
from txn.config import BrokerSettings, split_list
from txn.errors import ConfigError
from txn.logs import rare_log
from txn.metadata.image import Image
from txn.security.jaas import parse_jaas
from txn.security.login import Effect, Login, Offer, Step
from txn.security.mechanisms import (
    MECHANISMS,
    PLAIN,
    Exchange,
)
from txn.security.oauth import OAuthExchange
from txn.security.plain import PlainExchange
from txn.security.scram import HASHES_BY_MECHANISM, ScramCredential, ScramExchange, ScramHash
from txn.security.sessions import Connection, Listener
from txn.server.loop.requests import MalformedRequestError, decode_request
from txn.server.security.token_keys import KeysWantedError, token_keys
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from txn.wire.bodies.versions import ApiVersionsResponse
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_response, has_flexible_header

RAW_TOKEN: Final = -1
"""The version of a token that came bare, without a request around it."""

VERSIONS: Final[Mapping[int, range]] = {
    ApiKey.API_VERSIONS: range(6),
    ApiKey.SASL_HANDSHAKE: range(2),
    ApiKey.SASL_AUTHENTICATE: range(RAW_TOKEN, 3),
}

NONCE_BYTES: Final = 24

PLAIN_USER: Final = "user_"
"""Options of PlainLoginModule that begin so hold the passwords of users."""

SUCCEEDED, FAILED = "successful", "failed"


class Logins:
    """Authenticates the clients of a broker's SASL listeners.

    Args:
        server: The sockets.
        image: Has the users of SCRAM.
        settings: Of the broker.
        listeners: All of them.
        now_ms: Tells the time of day.

    Raises:
        ConfigError: a SASL listener has no mechanism, or one that cannot be offered.
    """

    def __init__(
        self,
        server: _core.Server,
        image: Image,
        settings: BrokerSettings,
        listeners: list[Listener],
        now_ms: Callable[[], int],
    ) -> None:
        self._server = server
        self._settings = settings
        self._now_ms = now_ms
        offers = Offers(image, settings, now_ms)
        self._offers = {one.name: offers.of(one.name) for one in listeners if one.is_sasl}
        self.counts: Counter[tuple[str, str, bool, str]] = Counter()
        """Ended authentications by listener, mechanism, whether it was again, and result."""

    def begin(self, listener: Listener) -> Login | None:
        """The authentication of a new connection; None where the listener asks for none."""
        return Login(self._offers[listener.name]) if listener.is_sasl else None

    async def answer(
        self, token: int, connection: Connection, api_key: int, api_version: int, body: bytes
    ) -> None:
        """Answer a request of a SASL listener's connection. Raises MalformedRequestError."""
        login = connection.login
        assert login is not None, "its listener asks for it"
        deciding = self._decide(login, api_key, api_version, body)
        del body  # it may be large, and a client that fails waits
        step, encoded = await deciding
        is_raw = api_version == RAW_TOKEN
        self._prepare(token, connection, step)
        if step.effect in (Effect.REFUSE, Effect.CLOSE):
            self._note_failure(connection, login, step)
            await asyncio.sleep(self._settings["connection.failed.authentication.delay.ms"] / 1000)
            if step.effect is Effect.CLOSE or is_raw:
                self._server.disconnect(token)
            else:
                self._server.refuse(token, has_flexible_header(api_key, api_version), encoded)
        elif is_raw:
            self._server.reply_raw(token, encoded)
        else:
            self._server.reply(token, has_flexible_header(api_key, api_version), encoded)

    async def _decide(
        self, login: Login, api_key: int, api_version: int, body: bytes
    ) -> tuple[Step, bytes]:
        """The step of a request, and the encoded answer."""
        if api_key == ApiKey.API_VERSIONS:
            step = login.refuse_versions()
            version = api_version if api_version in VERSIONS[api_key] else 0
            refused = ApiVersionsResponse(step.code, [], [], -1, [])
            return step, encode_response(api_key, version, refused)
        if api_version not in VERSIONS[api_key]:
            raise MalformedRequestError(f"api key {api_key} has no version {api_version}")
        if api_key == ApiKey.SASL_HANDSHAKE:
            request = decode_request(SaslHandshakeRequest, api_key, api_version, body)
            step = login.handshake(request.mechanism, api_version, monotonic_ms=monotonic_ms())
            is_illegal = step.code is ErrorCode.ILLEGAL_SASL_STATE
            response = SaslHandshakeResponse(step.code, [] if is_illegal else login.mechanisms)
            return step, encode_response(api_key, api_version, response)
        if api_version == RAW_TOKEN:
            step = await self._respond(login, body)
            return step, step.token
        token = decode_request(SaslAuthenticateRequest, api_key, api_version, body).auth_bytes
        del body
        step = await self._respond(login, token)
        answer = SaslAuthenticateResponse(
            step.code, step.message, step.token, step.lifetime_ms or 0
        )
        return step, encode_response(api_key, api_version, answer)

    async def _respond(self, login: Login, token: bytes) -> Step:
        try:
            return login.respond(token, now_ms=self._now_ms(), monotonic_ms=monotonic_ms())
        except KeysWantedError as wanted:
            await wanted.keys.refresh()
        try:
            return login.respond(token, now_ms=self._now_ms(), monotonic_ms=monotonic_ms())
        except KeysWantedError:  # the fetch took so long that the next one is due
            return login.refuse("the keys of the token's issuer did not come in time")

    def _prepare(self, token: int, connection: Connection, step: Step) -> None:
        """Pass a step to the sockets before its answer."""
        match step.effect:
            case Effect.REQUIRE | Effect.REQUIRE_RAW:
                is_raw = step.effect is Effect.REQUIRE_RAW
                self._server.require_authentication(token, is_raw=is_raw)
            case Effect.ADMIT:
                connection.session = connection.session._replace(principal=step.principal)
                self._server.authenticated(token, step.principal, step.lifetime_ms)
                assert connection.login is not None, "it was admitted by it"
                self._count(connection, connection.login, step, SUCCEEDED)

    def _note_failure(self, connection: Connection, login: Login, step: Step) -> None:
        self._count(connection, login, step, FAILED)
        rare_log.warning(
            "authentication.failed",
            principal=f"User:{step.name}" if step.name else "unknown",
            client_host=connection.session.client.host,
            listener=connection.session.listener.name,
            mechanism=login.mechanism or "none",
            is_reauthentication=step.is_reauthentication,
            reason=step.reason,
        )

    def _count(self, connection: Connection, login: Login, step: Step, result: str) -> None:
        listener = connection.session.listener.name
        self.counts[listener, login.mechanism, step.is_reauthentication, result] += 1


class Offers:
    """The mechanisms of SASL listeners.

    Args:
        image: Has the users of SCRAM.
        settings: Of the broker.
        now_ms: Tells the time of day.
    """

    def __init__(self, image: Image, settings: BrokerSettings, now_ms: Callable[[], int]) -> None:
        self._image = image
        self._settings = settings
        self._now_ms = now_ms
        self._fake_key = secrets.token_bytes(32)

    def of(self, listener: str) -> dict[str, Offer]:
        """The mechanisms of a listener, by name. Raises ConfigError."""
        setting = "sasl.enabled.mechanisms"
        names = split_list(self._settings.of_listener(listener, setting))
        for name in names:
            if name not in MECHANISMS:
                known = ", ".join(MECHANISMS)
                raise ConfigError(
                    f"broker property {setting} has {name} for listener {listener}, which "
                    f"this broker does not speak: it speaks {known}",
                    property=setting,
                )
        if not names:
            raise ConfigError(
                f"listener {listener} authenticates clients by SASL, and broker property "
                f"{setting} names no mechanism: give one or more of {', '.join(MECHANISMS)}",
                property=setting,
            )
        return {
            name: Offer(
                self._exchanges(listener, name),
                self._settings.of_listener(listener, "connections.max.reauth.ms", name),
            )
            for name in names
        }

    def _exchanges(self, listener: str, mechanism: str) -> Callable[[], Exchange]:
        """The maker of a mechanism's exchanges. Raises ConfigError."""
        match mechanism:
            case "PLAIN":
                return partial(PlainExchange, self._plain_users(listener))
            case "OAUTHBEARER":
                keys = token_keys(self._settings, listener, self._now_ms)
                return partial(OAuthExchange, keys.validate)
            case _:
                return partial(self._scram, HASHES_BY_MECHANISM[mechanism])

    def _scram(self, hash_: ScramHash) -> Exchange:
        return ScramExchange(
            hash_,
            partial(self._credential, hash_.number),
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            fake_key=self._fake_key,
        )

    def _credential(self, mechanism: int, name: str) -> ScramCredential | None:
        record = self._image.scram_credentials.get((name, mechanism))
        return None if record is None else ScramCredential(*record[2:])

    def _plain_users(self, listener: str) -> dict[str, str]:
        name = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        text = self._settings.of_listener(listener, "sasl.jaas.config", PLAIN)
        if text is None:
            raise ConfigError(
                f"listener {listener} offers PLAIN, and broker property {name} has no users: "
                "give org.apache.kafka.common.security.plain.PlainLoginModule required "
                'user_NAME="PASSWORD";',
                property=name,
            )
        module = parse_jaas(text)
        if module.name != "PlainLoginModule":
            raise ConfigError(
                f"broker property {name} has {module.name}: PLAIN takes PlainLoginModule",
                property=name,
            )
        return {
            option.removeprefix(PLAIN_USER): password
            for option, password in module.options.items()
            if option.startswith(PLAIN_USER)
        }
