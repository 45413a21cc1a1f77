"""Opens the store and the topic of a table by its settings."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from txn.admin.cluster import RunningCluster
from txn.admin.configs import TOPIC, described_configs
from txn.admin.connecting import ADVICE
from txn.errors import ConfigError, RejectedError, RetriableError, UnreachableError
from txn.security.client import SecuritySettings
from txn.table.changelog import Changelog
from txn.table.local_copy import DELETE_RETENTION_MS, LocalCopy
from txn.table.serdes import Serde
from txn.table.sqlite_store import SqliteStore
from txn.table.stores import MemoryStore, Store

MEMORY: Final = "memory"

RETENTION_MS_MIN: Final = 60_000
"""The shortest delete.retention.ms: a copy looks at the topic more often than that."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """A table as its program describes it."""

    topic: str
    servers: str
    security: SecuritySettings
    store: str | Path
    key: Serde
    value: Serde
    timeout_s: float

    def open(self, *, is_keyed: bool) -> LocalCopy:
        """Open the store and connect to the cluster; `LocalCopy` explains `is_keyed`.

        Raises:
            ConfigError: the topic does not exist or is not compacted, or the store keeps another.
            DirectoryError: the store is in use, or cannot be opened.
            UnreachableError: none of the servers answers.
            RejectedError: the cluster does not let this client in.
        """
        retention_ms = self._delete_retention_ms()
        store: Store = MemoryStore() if self.store == MEMORY else SqliteStore(self.store)
        try:
            changelog = Changelog(self.topic, self.servers, self.security, self.timeout_s)
            try:
                return LocalCopy(
                    store, changelog, delete_retention_ms=retention_ms, is_keyed=is_keyed
                )
            except BaseException:
                changelog.close()
                raise
        except BaseException:
            store.close()
            raise

    def _delete_retention_ms(self) -> int:
        """Return delete.retention.ms; check that the topic keeps all rows, and deletions long."""
        try:
            running = RunningCluster(
                self.servers, security=self.security, timeout_s=self.timeout_s, advice=ADVICE
            )
        except RetriableError as error:
            raise UnreachableError(str(error), reasons={self.servers: str(error)}) from error
        settings: dict[str, str | None] = {}
        try:
            running.require_topics([self.topic])
            with suppress(RejectedError):  # the user may not read settings
                (entries,) = described_configs(running, [(TOPIC, self.topic)])
                settings = {each.name: each.value for each in entries}
        finally:
            running.close()
        policy = settings.get("cleanup.policy") or "compact"
        if policy != "compact":
            raise ConfigError(
                f"the topic {self.topic!r} has cleanup.policy={policy}, so a table on it would "
                "lose rows. Set it: txn configs set --topic "
                f"{self.topic} cleanup.policy=compact",
                property="cleanup.policy",
                value=policy,
            )
        retention_ms = int(settings.get("delete.retention.ms") or DELETE_RETENTION_MS)
        if retention_ms < RETENTION_MS_MIN:
            raise ConfigError(
                f"the topic {self.topic!r} has delete.retention.ms={retention_ms}, so a table on "
                f"it could miss deletions. Set it to at least {RETENTION_MS_MIN}",
                property="delete.retention.ms",
                value=retention_ms,
            )
        return retention_ms
