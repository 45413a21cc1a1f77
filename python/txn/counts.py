"""Numbers with their nouns, for people."""


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 record`, `2,000 records`, `3 batches`.

    Args:
        number: The number.
        one: The noun of one.
        many: The noun of several, if it is not `one` and an s.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
