"""The errors of the registry: an HTTP status, a code and a text, as the original answers them."""

from typing import Final

INVALID_SCHEMA: Final = 42201
INCOMPATIBLE: Final = 409
"""The original answers this status as the code, too, for its older clients."""


class RegistryError(Exception):
    """A refused request.

    Attributes:
        status: The HTTP status.
        code: The code in the body; scripts read it.
        message: The text in the body.
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class SchemaError(Exception):
    """A text is no schema of its type; the message is the reason."""


def subject_not_found(subject: str) -> RegistryError:
    """Nothing is registered under a subject."""
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """A subject has no such version."""
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(number: int | str | None = None) -> RegistryError:
    """No schema has this id or GUID, or the subject does not have the schema."""
    named = "" if number is None else f" {number}"
    return RegistryError(404, 40403, f"Schema{named} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    """A deleted subject is deleted again."""
    text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(404, 40404, text)


def subject_not_soft_deleted(subject: str) -> RegistryError:
    """A subject is deleted for good, but not softly before."""
    text = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return RegistryError(404, 40405, text)


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    """A deleted version is deleted again."""
    text = f"Subject '{subject}' Version {version} was soft deleted."
    return RegistryError(404, 40406, f"{text}Set permanent=true to delete permanently")


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """A version is deleted for good, but not softly before."""
    text = f"Subject '{subject}' Version {version} was not deleted first before being permanently"
    return RegistryError(404, 40407, f"{text} deleted")


def compatibility_not_configured(subject: str) -> RegistryError:
    """A subject has no level of its own."""
    text = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryError(404, 40408, text)


def mode_not_configured(subject: str) -> RegistryError:
    """A subject has no mode of its own."""
    text = f"Subject '{subject}' does not have subject-level mode configured"
    return RegistryError(404, 40409, text)


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    """A schema breaks the subject's level of compatibility."""
    text = "Schema being registered is incompatible with an earlier schema for subject"
    details = ", ".join(reasons)
    return RegistryError(409, INCOMPATIBLE, f'{text} "{subject}", details: [{details}]')


def invalid_schema(reason: str) -> RegistryError:
    """A text is no schema of its type."""
    return RegistryError(422, INVALID_SCHEMA, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    """A version in a path is neither a number from 1 nor "latest"."""
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    text = f"The specified version '{version}' is not a valid version id. {allowed}"
    return RegistryError(422, 42202, text)


def invalid_level() -> RegistryError:
    """A level of compatibility has an unknown name."""
    text = "Invalid compatibility level. Valid values are none, backward, forward, full,"
    more = "backward_transitive, forward_transitive, and full_transitive"
    return RegistryError(422, 42203, f"{text} {more}")


def invalid_mode() -> RegistryError:
    """A mode has an unknown name."""
    text = "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT"
    return RegistryError(422, 42204, text)


def not_permitted(reason: str) -> RegistryError:
    """The mode forbids the request."""
    return RegistryError(422, 42205, reason)


def reference_exists(subject: str, version: int) -> RegistryError:
    """Another schema refers to the version that is to be deleted."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(422, 42206, f"One or more references exist to the schema {key}.")


def id_does_not_match(id: int) -> RegistryError:
    """An imported id belongs to another schema."""
    return RegistryError(422, 42207, f"Overwrite new schema with id {id} is not permitted.")


def invalid_subject(subject: str) -> RegistryError:
    """A subject cannot have this name."""
    return RegistryError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def too_large(what: str) -> RegistryError:
    """A schema exceeds the registry's bounds."""
    text = "Register operation failed because schema is too large"
    return RegistryError(422, 42209, f"{text}: {what}")


def malformed(reason: str) -> RegistryError:
    """A body or a parameter does not have the form of its request."""
    return RegistryError(422, 422, reason)
