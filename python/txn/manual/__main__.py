"""`python -m txn.manual DIRECTORY`: write every page, and the tables of contents, for Sphinx."""

import sys
from pathlib import Path

from txn.manual.contents import tables_of_contents
from txn.manual.pages import all_pages


def write_pages(directory: Path) -> None:
    """Write the pages; one that has not changed keeps its time, one that is gone goes."""
    pages = all_pages()
    texts = {f"{name}.md": page.text for name, page in pages.items()}
    texts |= {f"{name}.md": text for name, text in tables_of_contents(pages).items()}
    for path in directory.rglob("*.md"):
        if str(path.relative_to(directory)) not in texts:
            path.unlink()
    for name, text in texts.items():
        path = directory / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
