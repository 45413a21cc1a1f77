"""Why two schemas are not compatible."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """A difference that breaks compatibility.

    Attributes:
        kind: Its name; the original registry has the same.
        path: The place in the schema.
        text: The difference in words.
    """

    kind: str
    path: str
    text: str = ""

    def __str__(self) -> str:
        about = f", description:'{self.text}'" if self.text else ""
        return f"{{errorType:'{self.kind}', path:'{self.path}'{about}}}"
