"""Reads a client's security settings, in Java's spelling and in librdkafka's.

Pure: names and values go in, `SecuritySettings` or a ConfigError comes out; no file is opened.
`txn.access` reads the files.

| | |
|---|---|
| two spellings of one setting, in any case, with different values | refused, both are named |
| a setting that would change trust and cannot be honoured (`ssl.crl.location`) | refused |
| a setting that tunes Java or librdkafka (`sasl.login.refresh.*`) | without effect |
| an unknown `ssl.*`, `sasl.*` or `security.*` | refused, with the nearest known name |
| credentials without `security.protocol` | refused: the connection would be plain |

No message has a value that could be a secret; those of protocols, mechanisms and types are shown.

Sources: the login modules of Apache Kafka 4.2; KIP-651 (PEM).
"""

import re
from collections.abc import Callable, Iterable, Mapping

from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.security.client import PLAIN, SecuritySettings, Store
from txn.security.client_names import (
    AWS,
    GSSAPI_REFUSED,
    MECHANISMS,
    MODULES,
    PROTOCOLS,
    READ,
    STORE_TYPES,
)
from txn.security.client_tokens import TokenReader
from txn.security.given_settings import GivenSettings, error_about, why_refused
from txn.security.jaas import LoginModule, parse_jaas


def read_security(
    properties: Mapping[str, str], *, prefix: str = "", call: Callable[[], str] | None = None
) -> SecuritySettings:
    """Read the settings of a client's connections; names of other families are passed over.

    Args:
        properties: By Kafka's names or librdkafka's, without `prefix`.
        prefix: Goes before every name in a message: `kafka.` for Spark's options.
        call: Returns a token for OAUTHBEARER, in place of settings for one.

    Raises:
        ConfigError: a setting is unknown, cannot be honoured, is missing, or contradicts another.
    """
    reader = _Reader(properties, prefix)
    protocol = reader.choice("security.protocol", PROTOCOLS)
    if protocol is None:
        require_protocol(reader.given, prefix=prefix, call=call)
    protocol = protocol or "PLAINTEXT"
    tls = reader.tls() if protocol.endswith("SSL") else PLAIN
    sasl = reader.sasl(call) if protocol.startswith("SASL") else PLAIN
    return SecuritySettings(
        protocol,
        trusted=tls.trusted,
        keystore=tls.keystore,
        certificate=tls.certificate,
        key=tls.key,
        key_password=tls.key_password,
        check_hostname=tls.check_hostname,
        check_certificate=tls.check_certificate,
        mechanism=sasl.mechanism,
        username=sasl.username,
        password=sasl.password,
        token=sasl.token,
        extensions=sasl.extensions,
    )


def require_protocol(given: Iterable[str], *, call: object, prefix: str = "") -> None:
    """Refuse credentials without `security.protocol`, whose default is PLAINTEXT.

    Args:
        given: The names of the settings with a value, without `prefix`; unknown ones do not count.
        call: Returns a token, or None.
        prefix: Goes before every name in the message.

    Raises:
        ConfigError: there is something to protect.
    """
    names = [name for name in sorted(given) if name in READ or why_refused(name)]
    if call is None and all(each.startswith(("enable.", "https.")) for each in names):
        return
    wanted = "SASL_SSL" if call or any(e.startswith("sasl.") for e in names) else "SSL"
    first = f"{prefix}{names[0]}" if names else "a token"
    raise error_about(
        prefix,
        "security.protocol",
        f"is missing though {first} is given, so the connection would be plain: set it to "
        f"{wanted}, or to PLAINTEXT if that is meant",
    )


class _Reader(GivenSettings):
    """The settings of one client's TLS and SASL."""

    # ------------------------------------------------------------ TLS

    def tls(self) -> SecuritySettings:
        """The settings of TLS, in a value without the rest."""
        self._require_versions()
        self.choice("ssl.truststore.type", STORE_TYPES)
        self.choice("ssl.keystore.type", STORE_TYPES)
        keystore, certificate, key = self._identity()
        return SecuritySettings(
            trusted=self.single(
                self.store(
                    "ssl.truststore.location",
                    "ssl.truststore.certificates",
                    "ssl.truststore.password",
                ),
                self.store("ssl.ca.location", "ssl.ca.pem"),
            ),
            keystore=keystore,
            certificate=certificate,
            key=key,
            key_password=self.text("ssl.key.password"),
            check_hostname=self._checks_hostname(),
            check_certificate=self.flag("enable.ssl.certificate.verification", True),
        )

    def _identity(self) -> tuple[Store | None, Store | None, Store | None]:
        location = self.text("ssl.keystore.location")
        keystore = None
        if location is not None:
            keystore = Store(
                f"{self.prefix}ssl.keystore.location",
                location=location,
                password=self.text("ssl.keystore.password"),
            )
        certificate = self.single(
            self.store("ssl.certificate.location", "ssl.certificate.pem"),
            self.pem("ssl.keystore.certificate.chain"),
        )
        key = self.single(
            self.store("ssl.key.location", "ssl.key.pem"), self.pem("ssl.keystore.key")
        )
        self.single(keystore, certificate or key)
        if (certificate is None) != (key is None):
            one = certificate or key
            assert one is not None, "one of the two is given"
            raise self.error(
                one.setting.removeprefix(self.prefix),
                "is given without its other half: a client certificate is a certificate "
                "(ssl.certificate.location) and a key (ssl.key.location)",
            )
        return keystore, certificate, key

    def _checks_hostname(self) -> bool:
        name = "ssl.endpoint.identification.algorithm"
        text = self.values.get(name, "https").strip().lower()
        if text not in ("", "none", "https"):
            raise self.refused(name, text, "it takes https, or none")
        return text == "https"

    def _require_versions(self) -> None:
        text = self.text("ssl.enabled.protocols")
        if text is not None and "tlsv1.2" not in re.split(r"[,\s]+", text.lower()):
            raise self.error(
                "ssl.enabled.protocols",
                "cannot be honoured: TLS 1.3 and 1.2 are both offered, and the broker takes the "
                "higher. Remove it, or limit the broker's listener",
                text,
            )

    # ------------------------------------------------------------ SASL

    def sasl(self, call: Callable[[], str] | None) -> SecuritySettings:
        """The settings of SASL, in a value without the rest."""
        jaas = self.values.get("sasl.jaas.config")
        module = None if jaas is None else self._module(jaas)
        mechanism = self._mechanism(module, call)
        self._require_module(module, mechanism)
        if mechanism == "OAUTHBEARER":
            tokens = TokenReader(self, {} if module is None else module.options)
            return SecuritySettings(
                mechanism=mechanism, token=tokens.token(call), extensions=tokens.extensions()
            )
        username = self._credential("sasl.username", "username", module)
        password = self._credential("sasl.password", "password", module)
        return SecuritySettings(mechanism=mechanism, username=username, password=password)

    def _module(self, text: str) -> LoginModule:
        try:
            return parse_jaas(text)
        except ConfigError as fault:
            said = str(fault).removeprefix("sasl.jaas.config ")
            raise self.error("sasl.jaas.config", said) from None

    def _mechanism(self, module: LoginModule | None, call: object) -> str:
        texts: dict[str, str] = {
            name: self.values[name].strip().upper()
            for name in ("sasl.mechanism", "sasl.mechanisms")
            if name in self.values
        }
        text = self.one(texts)
        name = next(iter(texts), "sasl.mechanism")
        if text is None:
            fitting = MODULES.get(module.name if module else "", MECHANISMS)
            fitting = ("OAUTHBEARER",) if call else fitting
            raise self.error(
                name,
                f"is missing: set it to {', or to '.join(fitting)} (Kafka's default is GSSAPI, "
                "which is not supported)",
            )
        if text == "GSSAPI":
            raise self.error(name, f"cannot be GSSAPI: {GSSAPI_REFUSED}", text)
        if text == "AWS_MSK_IAM":
            raise self.error(name, f"cannot be AWS_MSK_IAM: {AWS}", text)
        if text not in MECHANISMS:
            hint = did_you_mean(text, MECHANISMS)
            listed = ", ".join(MECHANISMS)
            raise self.refused(name, text, f"it takes {listed}{hint}")
        return text

    def _require_module(self, module: LoginModule | None, mechanism: str) -> None:
        if module is None:
            return
        if module.name == "Krb5LoginModule":
            raise self.error("sasl.jaas.config", f"names Kerberos' module: {GSSAPI_REFUSED}")
        if module.name == "IAMLoginModule":
            raise self.error("sasl.jaas.config", f"names a module of Amazon's: {AWS}")
        fitting = MODULES.get(module.name)
        if fitting is None:
            raise self.error(
                "sasl.jaas.config",
                f"names a login module that is not known here: it takes {', '.join(MODULES)}",
            )
        if mechanism not in fitting:
            raise self.error(
                "sasl.jaas.config",
                f"is for {' or '.join(fitting)} ({module.name}), and sasl.mechanism is "
                f"{mechanism}: make them agree",
            )
        if module.options.get("tokenauth", "false").lower() == "true":
            raise self.error(
                "sasl.jaas.config",
                "asks for a delegation token (tokenauth), which is not supported. Give a user's "
                "name and password",
            )

    def _credential(self, name: str, option: str, module: LoginModule | None) -> str:
        values = {name: self.values[name]} if name in self.values else {}
        if module is not None and module.options.get(option):
            values["sasl.jaas.config"] = module.options[option]
        value = self.one(values)
        if not value:
            where = (
                f"sasl.jaas.config has no {option}" if module else "there is no sasl.jaas.config"
            )
            raise self.error(
                name, f"is missing, and {where}: the mechanism needs a user's name and password"
            )
        return value
