"""The tests that `docs/testing.md` shows are run by pytest, as its readers run them."""

import subprocess
import sys
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    tokens = MarkdownIt().parse((ROOT / "docs" / "testing.md").read_text())
    blocks = [each.content for each in tokens if each.type == "fence" and each.info == "python"]
    text = "\n".join(blocks)
    (tmp_path / "test_page.py").write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert f"{text.count('def test_')} passed" in ended.stdout, ended.stdout
