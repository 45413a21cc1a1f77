"""`txn serve --config FILE`: a file of Kafka's broker settings, used unchanged.

The file follows Kafka's rules: Java's properties in Latin-1, without the blanks around a value. Of
two lines with one name the last applies. Each setting gets one of five treatments:

- A setting of txn (`txn settings`) is applied.
- `log.dirs`, `process.roles` and `controller.*` give the directory and the role of the node, which
  must be a cluster of its own.
- A setting of Kafka without effect here is logged once.
- A security setting of Kafka that cannot be applied stops the start.
- Any other setting stops the start: it may be a misspelled security setting.

The listeners of controllers are ignored, with their settings: the controller is inside the node,
which opens no socket for it.

Deviation from Apache Kafka 4.2, which warns of an unknown setting and starts.
"""

import os
import stat
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from txn.config import (
    BROKER_PROPERTIES,
    LISTENER_PREFIX,
    ConfigType,
    listener_property,
    split_list,
)
from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.logs import log
from txn.security.mechanisms import MECHANISMS, OAUTHBEARER
from txn.server.settings.config_providers import resolved
from txn.server.settings.kafka_settings import DEMANDS, NOT_USED, TOKEN_VALIDATORS
from txn.server.settings.small_files import read_small_file, reason_of

BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java takes from both ends of a value."""

DIRECTORIES: Final = ("log.dirs", "log.dir")
"""Settings that name the data directory; the first that is there counts, as in Kafka."""

ROLES: Final = frozenset({"broker", "controller"})
JAAS: Final = "sasl.jaas.config"

_PLACE: Final = (
    "process.roles",
    "broker.id",
    "metadata.log.dir",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
)
"""Settings that name the node's place, and are of no use once it is known."""

READ_HERE: Final = frozenset({*DIRECTORIES, *_PLACE})


@dataclass(frozen=True, slots=True, repr=False)
class ConfigFile:
    """The settings of a file, some of them secrets.

    `properties`: those of txn, as `BrokerSettings` takes them.
    `data`: the data directory; None: the file names none.
    `not_used`: settings of Kafka that mean nothing here.
    `repeated`: settings that stand in the file more than once.
    `has_secrets`: a secret stands in the file itself.
    `references`: the texts of settings that a config provider has filled, as they stand there.
    """

    path: Path
    properties: Mapping[str, str]
    data: Path | None
    not_used: tuple[str, ...]
    repeated: tuple[str, ...]
    has_secrets: bool
    references: Mapping[str, str]

    def log_findings(self) -> None:
        """Log the settings that are unused or repeated, and a readable file with secrets."""
        if self.not_used:
            log.info("settings.not_used", path=str(self.path), names=",".join(self.not_used))
        if self.repeated:
            log.warning("settings.repeated", path=str(self.path), names=",".join(self.repeated))
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if self.has_secrets and mode & stat.S_IROTH:
            log.warning("settings.readable_by_others", path=str(self.path), mode=f"{mode:04o}")


def read_config_file(path: Path) -> ConfigFile:
    """Read a file of Kafka's broker settings.

    Raises:
        ConfigError: it cannot be read, or a setting in it cannot be honoured.
    """
    pairs = _pairs(path)
    texts = {name: text.strip(BLANKS) for name, text in pairs}
    counts = Counter(name for name, _ in pairs)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    has_secrets = any(
        is_secret(name) and text and not _is_reference(text) for name, text in texts.items()
    )
    filled = {name: text.strip(BLANKS) for name, text in resolved(texts).items()}
    references = {name: texts[name] for name, text in filled.items() if text != texts[name]}
    texts = filled
    _require_fit(texts, references)
    controllers = _controllers(texts)
    kept = _of_one_node(texts, controllers)
    not_used = {name for name, text in kept.items() if _is_passed_over(name, text, controllers)}
    return ConfigFile(
        path,
        {name: text for name, text in kept.items() if name not in not_used},
        _data_directory(texts),
        tuple(sorted(not_used)),
        tuple(repeated),
        has_secrets,
        references,
    )


def _require_fit(texts: Mapping[str, str], references: Mapping[str, str]) -> None:
    """Refuse a value of a config provider without telling it: it may be a secret."""
    for name, reference in references.items():
        entry = BROKER_PROPERTIES.get(name) or listener_property(name)
        if entry is None:
            continue
        try:
            entry.parse(texts[name])
        except (ValueError, KeyError):
            raise ConfigError(
                f"broker property {name} cannot be the value of {reference}: it takes "
                f"{entry.expects}",
                property=name,
            ) from None


def is_secret(name: str) -> bool:
    """Say whether nobody may be shown the value of a setting."""
    if name.endswith(JAAS):
        return True
    entry = BROKER_PROPERTIES.get(name) or listener_property(name)
    return entry is not None and entry.kind is ConfigType.PASSWORD


def _is_reference(text: str) -> bool:
    return text.startswith("${") and text.endswith("}")


def _pairs(path: Path) -> list[tuple[str, str]]:
    import javaproperties

    try:
        content = read_small_file(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--config {str(path)!r} cannot be read: {reason_of(error)}") from None
    try:
        return javaproperties.loads(content.decode("latin-1"), object_pairs_hook=list)
    except ValueError:  # its message repeats a part of the file
        raise ConfigError(
            f"--config {str(path)!r} cannot be read as Java's properties: a \\u has to be followed "
            "by four hexadecimal digits, and a backslash is written \\\\"
        ) from None


def _data_directory(texts: Mapping[str, str]) -> Path | None:
    setting = next((name for name in DIRECTORIES if texts.get(name)), None)
    metadata = texts.get("metadata.log.dir")
    if setting is None:
        if metadata:
            _refuse("metadata.log.dir", "stands without log.dirs: both are one directory here")
        return None
    directories = split_list(texts[setting])
    if len(directories) != 1:
        _refuse(setting, f"has {len(directories)} directories: this broker keeps one")
    directory = Path(directories[0])
    if metadata and os.path.normpath(metadata) != os.path.normpath(directory):
        _refuse("metadata.log.dir", f"is another than {setting}: both are one directory here")
    return directory


def _controllers(texts: Mapping[str, str]) -> Collection[str]:
    """The names of controllers' listeners, in capitals; refuses a node that is not alone."""
    roles = split_list(texts.get("process.roles", ""))
    if not ROLES.issuperset(roles):
        _refuse("process.roles", "takes broker,controller")
    if roles and len(set(roles)) < len(ROLES):
        _refuse(
            "process.roles",
            f"is {roles[0]} alone, so other nodes belong to the cluster. This broker is a cluster "
            "of its own, with its controller inside: give broker,controller",
        )
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        if len(split_list(texts.get(name, ""))) > 1:
            _refuse(name, "names several nodes: this broker is a cluster of its own")
    controllers = {name.upper() for name in split_list(texts.get("controller.listener.names", ""))}
    if roles and not controllers:
        _refuse("controller.listener.names", "is missing beside process.roles=broker,controller")
    return controllers


def _of_one_node(texts: Mapping[str, str], controllers: Collection[str]) -> dict[str, str]:
    """The settings without those that name the node's place."""
    kept = {name: text for name, text in texts.items() if name not in READ_HERE}
    for name in ("listeners", "advertised.listeners"):
        if name in kept:
            entries = split_list(kept[name])
            of_clients = [
                entry for entry in entries if entry.partition("://")[0].upper() not in controllers
            ]
            kept[name] = ",".join(of_clients)
            if not of_clients and name != "listeners":
                del kept[name]  # as in Kafka, each listener's own address then
    broker_id = texts.get("broker.id", "")
    is_chosen = broker_id and not broker_id.startswith("-")  # a negative one leaves it to Kafka
    if is_chosen and kept.setdefault("node.id", broker_id) != broker_id:
        _refuse("broker.id", f"is {broker_id}, and node.id is {kept['node.id']}: give one")
    voter = texts.get("controller.quorum.voters", "").strip().partition("@")[0]
    if voter and voter != kept.get("node.id", voter):
        _refuse("controller.quorum.voters", f"names node {voter}, and node.id is another")
    return kept


def _is_passed_over(name: str, text: str, controllers: Collection[str]) -> bool:
    """Say whether a setting means nothing here; False: it is one of txn's. Raises ConfigError."""
    if name in BROKER_PROPERTIES:
        return False
    if not name.startswith(LISTENER_PREFIX):
        return _means_nothing(name, name, "", text)
    listener, _, own = name.removeprefix(LISTENER_PREFIX).partition(".")
    if listener.upper() in controllers:
        return True
    if listener_property(name) is not None:
        return False
    mechanism, _, of_mechanism = own.partition(".")
    if mechanism.upper() in MECHANISMS:
        return _means_nothing(name, of_mechanism, mechanism, text)
    return _means_nothing(name, own, "", text)


def _means_nothing(name: str, setting: str, mechanism: str, text: str) -> bool:
    is_validator = setting == "sasl.server.callback.handler.class" and text in TOKEN_VALIDATORS
    if is_validator and mechanism == OAUTHBEARER.lower():
        return True
    demand = DEMANDS.get(setting)
    if demand is not None and text not in ("", *demand.accepted):
        _refuse(name, demand.reason)
    if demand is None and setting not in NOT_USED:
        if setting in BROKER_PROPERTIES:
            _refuse(name, f"is not for one listener alone: give {setting}, which is for all")
        known = BROKER_PROPERTIES.keys() | NOT_USED | DEMANDS.keys() | READ_HERE
        _refuse(
            name,
            f"is unknown{did_you_mean(setting, known)}. Correct it, or take it out: a setting that "
            "counts for nothing may leave a broker open",
        )
    return True


def _refuse(setting: str, reason: str) -> NoReturn:
    raise ConfigError(f"broker property {setting} {reason}", property=setting)
