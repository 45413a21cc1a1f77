"""Counts four habits of style that make our prose hard to read, in each tree of the repository.

`python tests/words.py` prints the rates, and `python tests/words.py PATH …` lists every finding
with its line. No test holds a rate: a low one alone does not make prose good.

The counted text is docstrings and comments of Python and Rust, and Markdown outside of code
blocks. Code spans and quoted text count as one word. The habits are:

    what       "what" or "whatever" in a sentence that is no question; "what to do" is not counted
    who        "whom", "whoever", and "who" without a noun or a comma before it
    long       a sentence of more than 25 words; it ends with `.`, `!`, `?`, its paragraph, its
               list item or its table cell
    fragment   a docstring's first sentence that begins with "As", "Of", "Whether" or "How"; or
               with another preposition and has no comma, behind which a clause could begin
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

TREES: Final = {
    "python": ["python/**/*.py", "python/**/*.pyi"],
    "rust": ["rust/**/*.rs"],
    "tests": ["tests/**/*.py", "benches/**/*.py"],
    "docs": ["*.md", "docs/**/*.md", "examples/**/*.md", "tests/**/*.md"],
    "examples": ["examples/**/*.py"],
}
HABITS: Final = ("what", "who", "long", "fragment")
WORDS_MAX: Final = 25

WHAT: Final = re.compile(r"\bwhat(?:ever)?\b(?! to\b)", re.IGNORECASE)
WHO: Final = re.compile(r"(?:(\S+)\s+)?\b(who|whom|whoever|whomever)\b", re.IGNORECASE)
PERSON: Final = re.compile(
    r"(?:,|\b(?:those|one|people|somebody|someone|anybody|anyone|everybody|everyone|nobody"
    r"|(?!(?:f?or|after|under|over|n?ever|whether|later|when|then|after)$)"
    r"\w+(?:er|or|ent|ant|ist|man|men)s?))$",
    re.IGNORECASE,
)
"""The word before a "who" that has a noun, or a comma, to refer to."""

ALWAYS_FRAGMENTS: Final = {"as", "of", "whether", "how"}
PREPOSITIONS: Final = set(
    "for by in at on with without from to under over between after before until per behind "
    "beside below above within through since during against among towards into".split()
)


@dataclass(frozen=True)
class Paragraph:
    """Text of one paragraph, list item or cell, and the line on which it begins."""

    line: int
    text: str
    opens_docstring: bool = False


@dataclass(frozen=True)
class Finding:
    """One place where a habit shows."""

    path: Path
    line: int
    habit: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.habit}: {self.sentence}"


@dataclass
class Count:
    """Words of a tree, and how often each habit shows in them."""

    words: int = 0
    habits: Counter[str] = field(default_factory=Counter)

    def rates(self) -> dict[str, float]:
        """Findings in 1,000 words."""
        return {habit: 1000 * self.habits[habit] / max(self.words, 1) for habit in HABITS}


def files_of(tree: str) -> list[Path]:
    """List a tree's files, without those that a build made."""
    found = {path for pattern in TREES[tree] for path in ROOT.glob(pattern)}
    return sorted(path for path in found if "target" not in path.parts)


def paragraphs_of(path: Path) -> Iterator[Paragraph]:
    """Split the prose of one file into paragraphs."""
    text = path.read_text()
    if path.suffix == ".md":
        return _markdown(text)
    if path.suffix == ".rs":
        return _rust(text)
    return _python(text)


def findings_in(path: Path, count: Count) -> Iterator[Finding]:
    """Find the habits in one file, and add its words and findings to `count`."""
    for paragraph in paragraphs_of(path):
        sentences = _sentences(paragraph.text)
        for number, sentence in enumerate(sentences):
            count.words += len(sentence.split())
            opens = paragraph.opens_docstring and number == 0
            for habit in _habits(sentence, opens_docstring=opens):
                count.habits[habit] += 1
                yield Finding(path, paragraph.line, habit, sentence)


def count_tree(tree: str) -> Count:
    """Count the words and habits of one tree."""
    count = Count()
    for path in files_of(tree):
        for _ in findings_in(path, count):
            pass
    return count


def _habits(sentence: str, *, opens_docstring: bool) -> Iterator[str]:
    if not sentence.endswith("?"):
        yield from ["what"] * len(WHAT.findall(sentence))
        for before, pronoun in WHO.findall(sentence):
            if pronoun.lower() != "who" or not PERSON.search(before):
                yield "who"
    if len(sentence.split()) > WORDS_MAX:
        yield "long"
    if opens_docstring:
        first = re.split(r"\W", sentence, maxsplit=1)[0].lower()
        if first in ALWAYS_FRAGMENTS or (first in PREPOSITIONS and "," not in sentence):
            yield "fragment"


def _sentences(text: str) -> list[str]:
    text = re.sub(r"``.+?``|`[^`]*`|\"[^\"]*\"|“[^”]*”", "CODE", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\b(e\.g|i\.e|etc|vs)\.", r"\1", text)
    sentences = re.split(r"(?<=[.!?])[)\"*_]*\s+", " ".join(text.split()))
    return [sentence for sentence in sentences if re.search(r"[A-Za-z]", sentence)]


def _split(first_line: int, lines: list[str], *, docstring: bool) -> Iterator[Paragraph]:
    """Split lines at empty ones, at list items, at a docstring's named items and at headings."""
    begun, held = first_line, list[str]()
    opens = docstring
    depth = 0
    for number, line in enumerate(lines, first_line):
        indented = len(line) - len(line.lstrip())
        item = re.match(r"\s*(?:[-*] |\d+\. |\w+(?: \w+)?: |#)", line)
        if held and (not line.strip() or item or indented != depth):
            yield Paragraph(begun, " ".join(held), opens)
            held, opens = [], False
        if line.strip():
            if not held:
                begun = number
            depth = indented if not line.lstrip().startswith("#") else -1
            held.append(re.sub(r"^\s*(?:[-*] |\d+\. |#+ )", "", line).strip())
    if held:
        yield Paragraph(begun, " ".join(held), opens)


def _python(text: str) -> Iterator[Paragraph]:
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            first, *rest = node.value.value.splitlines() or [""]
            lines = [first, *_dedent(rest)]
            yield from _split(node.lineno, lines, docstring=True)
    held, begun = list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#:! ")
            if re.match(r"(noqa|type:|ruff|pragma|fmt:|mypy)|-{5}", words):
                continue
            alone = token.line.lstrip().startswith("#")
            if held and not (alone and token.start[0] == begun + len(held)):
                yield Paragraph(begun, " ".join(held))
                held = []
            if not held:
                begun = token.start[0]
            held.append(words)
    if held:
        yield Paragraph(begun, " ".join(held))


def _dedent(lines: list[str]) -> list[str]:
    margin = min((len(x) - len(x.lstrip()) for x in lines if x.strip()), default=0)
    return [x[margin:] for x in lines]


def _rust(text: str) -> Iterator[Paragraph]:
    held, begun, kind = list[str](), 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = re.match(r"\s*(//[/!]?) ?(.*)", line) or re.match(r".*[;{},)] +(//) (.*)", line)
        if held and (match is None or match[1] != kind):
            yield from _split(begun, _without_code(held), docstring=kind != "//")
            held = []
        if match is not None:
            if not held:
                begun, kind = number, match[1]
            held.append(match[2])


def _without_code(lines: list[str]) -> list[str]:
    inside = False
    kept = []
    for line in lines:
        fence = line.lstrip().startswith("```")
        inside ^= fence
        kept.append("" if inside or fence else line)
    return kept


def _markdown(text: str) -> Iterator[Paragraph]:
    lines = _without_code(text.splitlines())
    prose = []
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("|"):
            for cell in line.strip().strip("|").split("|"):
                yield Paragraph(number, cell)
        prose.append("" if line.startswith(("|", "    ")) else line)
    yield from _split(1, prose, docstring=False)


def main(arguments: list[str]) -> None:
    """Print the rates, or list findings under the given paths."""
    paths = [Path(argument).resolve() for argument in arguments]
    for tree in TREES:
        count = Count()
        for path in files_of(tree):
            if not paths or any(path == each or each in path.parents for each in paths):
                for finding in findings_in(path, count):
                    if paths:
                        print(finding)
        if count.words:
            rates = "  ".join(f"{habit} {rate:.2f}" for habit, rate in count.rates().items())
            print(f"{tree}: {count.words} words; in 1,000: {rates}")


if __name__ == "__main__":
    main(sys.argv[1:])
