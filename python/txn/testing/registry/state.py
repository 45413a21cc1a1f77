"""The state of the registry, which changes only by the records of `_schemas`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from txn.testing.registry import records
from txn.testing.registry.records import Key, Version

GLOBAL: Final = None
"""Stands for the subject of the global level and mode."""


class State:
    """Versions, levels and modes.

    Attributes:
        levels: The level of compatibility by subject.
        configs: The rest of each subject's configuration.
        modes: The mode by subject.
    """

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, Version]] = {}
        self._last_id = 0
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}

    def replay(self, key_bytes: bytes | None, value_bytes: bytes | None) -> None:
        """Apply a record; one that the registry does not know changes nothing."""
        key, value = records.key_of(key_bytes), records.value_of(value_bytes)
        if key is not None:
            self._APPLY[key.type](self, key, value)

    # ------------------------------------------------------------ questions

    @property
    def next_id(self) -> int:
        """An id that no schema has had."""
        return self._last_id + 1

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """The subjects with a version, sorted; with `deleted` also those without a live one."""
        return sorted(each for each in self._versions if self.versions(each, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, in order."""
        found = self._versions.get(subject, {})
        return [found[at] for at in sorted(found) if deleted or not found[at].is_deleted]

    def version(self, subject: str, number: int) -> Version | None:
        """A version, softly deleted or not."""
        return self._versions.get(subject, {}).get(number)

    def every(self) -> Iterator[Version]:
        """Every version of every subject."""
        for subject in sorted(self._versions):
            yield from self.versions(subject, deleted=True)

    def referring(self, subject: str, number: int, *, deleted: bool) -> list[Version]:
        """The versions that use a version."""
        return [
            each
            for each in self.every()
            if (deleted or not each.is_deleted)
            and any((at.subject, at.version) == (subject, number) for at in each.references)
        ]

    # ------------------------------------------------------------ records

    def _schema(self, key: Key, value: records.Json | None) -> None:
        assert key.subject is not None, "a key of this type has both"
        assert key.version is not None, "a key of this type has both"
        if value is None:
            found = self._versions.get(key.subject, {})
            found.pop(key.version, None)
            if not found:
                self._versions.pop(key.subject, None)
            return
        version = records.version_of(value)
        if version is not None:
            self._versions.setdefault(key.subject, {})[key.version] = version
            self._last_id = max(self._last_id, version.id)

    def _delete_subject(self, key: Key, value: records.Json | None) -> None:
        last = (value or {}).get("version")
        found = self._versions.get(key.subject or "", {})
        for number, version in found.items():
            if isinstance(last, int) and number <= last:
                found[number] = version.deleted()

    def _clear_subject(self, key: Key, value: records.Json | None) -> None:
        if value is not None:
            self._versions.pop(key.subject or "", None)

    def _config(self, key: Key, value: records.Json | None) -> None:
        if value is None:
            self.configs.pop(key.subject, None)
        else:
            self.configs[key.subject] = {
                name: at for name, at in value.items() if name != "subject"
            }

    def _mode(self, key: Key, value: records.Json | None) -> None:
        if value is None:
            self.modes.pop(key.subject, None)
        elif isinstance(value.get("mode"), str):
            self.modes[key.subject] = value["mode"]

    _APPLY: Final[Mapping[str, Callable[["State", Key, records.Json | None], None]]] = {
        records.SCHEMA: _schema,
        records.DELETE_SUBJECT: _delete_subject,
        records.CLEAR_SUBJECT: _clear_subject,
        records.CONFIG: _config,
        records.MODE: _mode,
    }
