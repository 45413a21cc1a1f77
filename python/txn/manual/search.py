"""The search for a page: words of a question, and the pages that answer it, best first.

A page has the score of its best section, by BM25. So a long page with a word here and a word there
does not go before a short one that is about both. A word of the title or of the section's heading
counts again. Pages for users go first.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from txn.manual.pages import Page, all_pages

SATURATION: Final = 1.2
LENGTH: Final = 0.6
TITLE_WEIGHT: Final = 2.0
HEADING_WEIGHT: Final = 0.4

FACTORS: Final[Mapping[str, float]] = {
    "decisions/*": 0.4,
    "tests": 0.4,
    "contributing": 0.4,
    "reference/python/*": 0.5,
    "architecture": 0.6,
    "internals": 0.6,
    "reference/*": 0.7,
}
"""Names or patterns of pages, and how much each counts; 1 for those that are not here."""

STOP_WORDS: Final = frozenset(
    "a about after all am an and any are as at be been but by can cannot do does for from get gets "
    "happen has have how i if in into is it its me mean my no not of on or say so that the their "
    "them then there they this to was what when where which who why will with you your".split()
)

_WORD: Final = re.compile(r"[^\W_]+")
_CAPITALS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Where a word of a name begins: `FencedError` has two."""
_ENDINGS: Final = ("ations", "ation", "ings", "ing", "ions", "ion", "ed", "es", "s", "e")

SAME: Final[Mapping[str, str]] = {
    "messag": "record",
    "stuck": "hang",
    "expir": "timed",
    "freeze": "hang",
    "slow": "cost",
    "fast": "cost",
    "perform": "cost",
    "ui": "console",
    "web": "console",
    "migrat": "client",
    "maximum": "larg",
    "larger": "larg",
    "endpoint": "address",
    "corrupt": "damag",
    "broken": "damag",
    "password": "sasl",
    "ssl": "tls",
    "encrypt": "tls",
    "monitor": "metric",
    "prometheu": "metric",
    "pyspark": "spark",
    "unit": "test",
    "pytest": "test",
    "duplicat": "twice",
    "doubl": "twice",
    "opentelemetry": "trac",
    "browser": "console",
    "systemd": "deploy",
    "docker": "deploy",
    "container": "deploy",
    "permission": "acl",
    "limit": "quota",
    "throttl": "quota",
}
"""Words of questions, by their stems, and the words that the pages have for them."""


@dataclass(frozen=True, slots=True)
class Found:
    """A page that a search found: its score, and the line of it that has most of the words."""

    page: Page
    score: float
    line: str


def search(question: str, most: int = 10) -> list[Found]:
    """Return the pages that fit the words of a question best, at most this many."""
    asked = set(words_of(question))
    pages = all_pages()
    weights = {word: _rarity(word) for word in asked}
    scores = {name: _score(each, asked, weights) * _factor(name) for name, each in _read().items()}
    best = sorted((-score, name) for name, score in scores.items() if score > 0)[:most]
    return [Found(pages[name], -score, _line(pages[name], asked)) for score, name in best]


def words_of(text: str) -> list[str]:
    """Return the stems of the words of a text, without those that every text has."""
    found = (each.lower() for each in _WORD.findall(_CAPITALS.sub(" ", text)))
    stems = (_stem(each) for each in found if each not in STOP_WORDS)
    return [SAME.get(each, each) for each in stems]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            stem = word[: -len(ending)]
            return stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "ls" else stem
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


@dataclass(frozen=True, slots=True)
class _Read:
    """The words of a page: of its title, of each heading with its section, and all of them."""

    title: frozenset[str]
    sections: list[tuple[frozenset[str], Counter[str]]]
    words: frozenset[str]


@cache
def _read() -> Mapping[str, _Read]:
    return {name: _read_page(page) for name, page in all_pages().items()}


def _read_page(page: Page) -> _Read:
    sections = []
    for section in re.split(r"^(?=##+ )", page.text, flags=re.MULTILINE):
        heading, _, _ = section.partition("\n")
        sections.append((frozenset(words_of(heading)), Counter(words_of(section))))
    title = frozenset(words_of(f"{page.title} {page.name}"))
    return _Read(title, sections, title.union(*(counts for _, counts in sections)))


@cache
def _mean_size() -> float:
    """The mean number of words of a section."""
    sizes = [counts.total() for each in _read().values() for _, counts in each.sections]
    return sum(sizes) / len(sizes)


def _rarity(word: str) -> float:
    having = sum(word in each.words for each in _read().values())
    return math.log(1 + (len(_read()) - having + 0.5) / (having + 0.5))


def _score(page: _Read, asked: set[str], weights: Mapping[str, float]) -> float:
    best = max(
        sum(
            weights[word] * (_presence(counts, word) + HEADING_WEIGHT * (word in heading))
            for word in asked & counts.keys()
        )
        for heading, counts in page.sections
    )
    return best + TITLE_WEIGHT * sum(weights[word] for word in asked & page.title)


def _presence(counts: Counter[str], word: str) -> float:
    room = SATURATION * (1 - LENGTH + LENGTH * counts.total() / _mean_size())
    return counts[word] * (SATURATION + 1) / (counts[word] + room)


def _factor(name: str) -> float:
    return next((each for pattern, each in FACTORS.items() if fnmatchcase(name, pattern)), 1.0)


def _line(page: Page, asked: set[str]) -> str:
    """The line that has most of the words, without marks of Markdown."""
    lines = [line.strip() for line in page.text.splitlines() if line.strip("-|`# ")]
    if not lines:
        return ""
    best = max(lines, key=lambda line: len(asked & set(words_of(line))))
    return re.sub(r"\]\([^)]*\)|[`*#|\[]", "", best).strip()
