"""The search for a page: words of a question, and the pages that answer it, best first.

A page has the score of its best section, by BM25 with fields. So a long page with a word here and a
word there does not go before a short one that is about both. Titles and headings weigh more than
text, and text more than code. Pages for users go first.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from typing import Final

from txn.manual.pages import Page, all_pages, lines_of

SATURATION: Final = 4.0
LENGTH: Final = 0.6
PAIR: Final = 0.2
"""Two words side by side, as a word of their own: nearly each pair is rare, so it counts less."""

FIELDS: Final[Mapping[str, float]] = {
    "title": 4.0,
    "heading": 2.0,
    "lead": 1.0,
    "row": 3.0,
    "text": 1.0,
    "code": 0.2,
}
"""The fields of a section with their weights. `row` has the first cell of each row of a table,
which names what the row is about, and `lead` the first paragraph of the page.
"""

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
    "happen has have how i if in into is it its me mean more my not of on or say so that the their "
    "them then there they this to was what when where which who why will with work you your".split()
)

_NAME: Final = re.compile(r"(?<![\w.])[a-z]\w*(?:\.\w+)+")
_ROW: Final = re.compile(r"^ *\| *`([^`|]+)` *\|")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_WORD: Final = re.compile(r"[^\W_]+")
_CAPITALS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Where a word of a name begins: `FencedError` has two."""
_ENDINGS: Final = ("ations", "ation", "ings", "ing", "ions", "ion", "ed", "es", "s", "e")

SAME: Final[Mapping[str, str]] = {
    "messag": "record",
    "stuck": "hang",
    "nothing": "no",
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
    asked = _asked(question)
    pages = all_pages()
    rarities = {word: _rarity(word) for word in asked}
    scores = {name: _score(each, rarities) * _factor(name) for name, each in _sections().items()}
    best = sorted((-score, name) for name, score in scores.items() if score > 0)[:most]
    return [Found(pages[name], -score, _line(pages[name], asked)) for score, name in best]


def _asked(question: str) -> set[str]:
    """The words of a question. A dotted name of a page stands for itself, not for its parts."""
    names = {name for name in _NAME.findall(question.lower()) if _pages_with(name)}
    for name in names:
        question = re.sub(re.escape(name), " ", question, flags=re.IGNORECASE)
    return names | set(_words_and_pairs(question))


def words_of(text: str) -> list[str]:
    """Return the stems of the words of a text, without those that every text has.

    A dotted name, as of a setting or of a line of the log, is a word beside its parts.
    """
    found = (each.lower() for each in _WORD.findall(_CAPITALS.sub(" ", text)))
    stems = (_stem(each) for each in found if each not in STOP_WORDS)
    return [*_NAME.findall(text.lower()), *(SAME.get(each, each) for each in stems)]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            stem = word[: -len(ending)]
            return stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "ls" else stem
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


_Fields = Mapping[str, Counter[str]]
"""The words of a section in each field."""
_Weights = Mapping[str, float]
"""How much a section is about each of its words."""


@cache
def _sections() -> Mapping[str, list[_Weights]]:
    """The sections of every page, as BM25 with fields (BM25F) weighs them."""
    read = {name: list(_read(page)) for name, page in all_pages().items()}
    sections = [section for found in read.values() for section in found]
    means = {
        field: sum(section[field].total() for section in sections) / len(sections)
        for field in FIELDS
    }
    return {name: [_weigh(section, means) for section in found] for name, found in read.items()}


def _weigh(section: _Fields, means: Mapping[str, float]) -> _Weights:
    weights: dict[str, float] = {}
    for field, weight in FIELDS.items():
        words = section[field]
        length = 0.0 if field == "row" else LENGTH  # each row stands for itself
        size = 1 - length + length * words.total() / means[field]
        for word, times in words.items():
            weights[word] = weights.get(word, 0.0) + weight * times / size
    return weights


def _read(page: Page) -> Iterator[_Fields]:
    """The sections of a page. Each has the title and the first paragraph of the page."""
    lines = list(lines_of(page.text))
    title = Counter([*_words_and_pairs(page.title), *words_of(page.name)])
    lead = Counter(_words_and_pairs(_first_paragraph(lines)))
    section: dict[str, Counter[str]] = {}
    for line, is_code in [("# \n", False), *lines]:
        heading = not is_code and line.startswith("#")
        if heading:
            if section:
                yield section
            section = {field: Counter() for field in FIELDS} | {"title": title, "lead": lead}
        field = "code" if is_code else "heading" if heading else "text"
        section[field].update(_words_and_pairs(line))
        if row := _ROW.match(line):
            section["row"].update(_NAME.findall(row[1].lower()))
    yield section


def _words_and_pairs(text: str) -> list[str]:
    """The words of a text, and each two that stand side by side, in either order."""
    words = words_of(text)
    return words + [" ".join(sorted(pair)) for pair in pairwise(words)]


def _first_paragraph(lines: list[tuple[str, bool]]) -> str:
    text = "".join(line for line, is_code in lines if not is_code and not line.startswith("#"))
    return text.strip().partition("\n\n")[0]


def _pages_with(word: str) -> int:
    pages = _sections().values()
    return sum(any(word in section for section in sections) for sections in pages)


def _rarity(word: str) -> float:
    having = _pages_with(word)
    rarity = math.log(1 + (len(_sections()) - having + 0.5) / (having + 0.5))
    return rarity * PAIR if " " in word else rarity


def _score(sections: list[_Weights], rarities: Mapping[str, float]) -> float:
    """The score of the best section."""
    return max(
        sum(
            rarity * section[word] * (SATURATION + 1) / (section[word] + SATURATION)
            for word, rarity in rarities.items()
            if word in section
        )
        for section in sections
    )


def _factor(name: str) -> float:
    return next((each for pattern, each in FACTORS.items() if fnmatchcase(name, pattern)), 1.0)


def _line(page: Page, asked: set[str]) -> str:
    """The line that has most of the words, without marks of Markdown."""
    lines = [line.strip() for line in page.text.splitlines() if line.strip("-|`# ")]
    if not lines:
        return ""
    best = max(lines, key=lambda line: len(asked & set(words_of(line))))
    return re.sub(r"[`*#|]", "", _LINK.sub(r"\1", best)).strip()
