"""The error of one row."""


class BadRowError(Exception):
    """A row is not decoded or encoded; the message is the reason, without contents of the row."""
