"""Answers made from the metadata image, kept as bytes until the image changes.

Metadata answers are long, requested often, and change seldom. Encoding an answer with 100 topics
needs milliseconds.
"""

from txn.metadata.image import Image

KEPT_MAX = 256
KEPT_BYTES_MAX = 32 << 20
"""Bytes of all answers together, but for the last."""


class ResponseCache:
    """Question → answer, as long as the image stays as it is."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._version = image.version
        self._answers: dict[object, bytes] = {}
        self._bytes = 0

    def get(self, question: object) -> bytes | None:
        """The answer to the same question, if nothing has changed since."""
        is_full = len(self._answers) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX
        if self._version != self._image.version or is_full:
            self._answers.clear()
            self._bytes = 0
            self._version = self._image.version
        return self._answers.get(question)

    def keep(self, question: object, answer: bytes, *, version: int) -> None:
        """Remember an answer that was made from the image's `version`."""
        if version == self._version == self._image.version:
            self._answers[question] = answer
            self._bytes += len(answer)
