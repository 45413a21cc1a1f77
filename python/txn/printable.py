"""Makes text from outside safe for a terminal: names of files, topics and clients; keys; values.

Characters that a terminal would obey or hide are written out. Line ends, escape sequences and marks
that turn the direction of text are among them.
"""


def printable(text: object) -> str:
    """Return a text with every character that does not print written as Python writes it."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
    )


def is_utf8(text: str) -> bool:
    """Return True if a word was UTF-8: Python keeps other bytes of a command line as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
