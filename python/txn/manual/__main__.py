"""`python -m txn.manual DIRECTORY`: write every page, and the tables of contents, for Sphinx."""

import sys
from pathlib import Path

from txn.manual.contents import tables_of_contents
from txn.manual.pages import all_pages, images


def write_pages(directory: Path) -> None:
    """Write the pages and images; an unchanged file keeps its time, one that is gone goes."""
    pages = all_pages()
    texts = {**{name: page.text for name, page in pages.items()}, **tables_of_contents(pages)}
    files = {f"{name}.md": text.encode() for name, text in texts.items()} | dict(images())
    for path in (*directory.rglob("*.md"), *directory.rglob("*.png")):
        if path.relative_to(directory).as_posix() not in files:
            path.unlink()
    for name, content in files.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
