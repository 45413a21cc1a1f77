"""`cluster.configs`: reads and changes settings of topics, brokers and groups."""

from collections.abc import Mapping, Sequence

from txn.admin.cluster import RunningCluster
from txn.admin.configs import ConfigEntry, ConfigKind, alter_configs, described_configs


class Configs:
    """The settings in a cluster. Every method may raise RetriableError: no broker answers."""

    def __init__(self, running: RunningCluster) -> None:
        self._running = running

    def describe(self, kind: ConfigKind, name: str) -> Sequence[ConfigEntry]:
        """Return all settings of a topic, a broker or a group, sorted by name.

        Args:
            kind: `ConfigKind.TOPIC`, `BROKER` or `GROUP`.
            name: Name of the topic or group, or id of the broker. `""` with `BROKER` stands for
                the settings that all brokers share.

        Raises:
            ConfigError: no broker has this id.
            RejectedError: the topic does not exist, or the user may not.

        Source: KIP-133, KIP-226, KIP-848 (groups).
        """
        (entries,) = described_configs(self._running, [(kind, name)])
        return entries

    def alter(
        self,
        kind: ConfigKind,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set settings; None removes one, so that the next wider value applies.

        Settings that are not named keep their values.

        Args:
            kind: `ConfigKind.TOPIC`, `BROKER` or `GROUP`.
            name: As for `describe`.
            changes: Kafka's name of a setting → its value as a text.
            validate_only: Check the request, and change nothing.

        Raises:
            ConfigError: a setting is unknown; the message has the nearest name.
            RejectedError: a value does not fit, or the user may not.

        Source: KIP-339.
        """
        alter_configs(self._running, (kind, name), changes, is_dry_run=validate_only)
