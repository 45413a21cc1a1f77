"""The order of the pages: a page is listed by the first section that has its name."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from txn.manual.pages import Page

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Begin": ("overview",),
    "Tutorial": ("tutorial/index", "tutorial/*"),
    "How-to guides": ("how-to/index", "how-to/*"),
    "Concepts": ("concepts/index", "concepts/*"),
    "Troubleshooting": ("errors/index", "errors/*", "damage", "surprises"),
    "Reference": ("reference/*", "settings", "metrics", "cli"),
    "Internals": (
        *(
            "architecture",
            "internals",
            "internals-of-tests",
            "on-disk",
            "transaction-rules",
            "decisions/index",
        ),
        *("decisions/*", "performance", "tests", "contributing", "changelog"),
    ),
    "Guides": ("python-client", "spark", "spark-examples", "testing", "console", "security*", "*"),
}
"""Names or patterns of names. The last section has every page that no other one has."""

SHOWN: Final = (
    *("Begin", "Tutorial", "How-to guides", "Concepts", "Guides"),
    *("Reference", "Troubleshooting", "Internals"),
)
"""The sections in the order that readers see."""


def sections_of(names: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    """Yield each section with its pages, in the order of the site."""
    left = sorted(names)
    found: dict[str, list[str]] = {}
    for section, patterns in SECTIONS.items():
        for pattern in patterns:
            for name in [each for each in left if fnmatchcase(each, pattern)]:
                left.remove(name)
                found.setdefault(section, []).append(name)
    yield from ((section, found[section]) for section in SHOWN if section in found)


def tables_of_contents(pages: Mapping[str, Page]) -> Mapping[str, str]:
    """Return the page `index`, which leads Sphinx to every other page."""
    lines = ["# txn", "", "An exactly-once transactional message log in a Python package.", ""]
    for section, names in sections_of(pages):
        lines += [f"```{{toctree}}\n:caption: {section}\n:maxdepth: 1\n", *names, "```", ""]
    return {"index": "\n".join(lines)}
