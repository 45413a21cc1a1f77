"""The prose of each tree keeps its budget; `words.py` has the rules, and lists findings."""

from pathlib import Path

import pytest

import words
from words import HABITS, TREES, Count, budget, count_tree


@pytest.mark.parametrize("tree", TREES)
def test_prose_keeps_its_budget(tree: str) -> None:
    """The budget may only fall: `python tests/words.py --lower` writes the present rates."""
    rates = count_tree(tree).rates()
    over = {habit: rates[habit] for habit in HABITS if rates[habit] > budget()[tree][habit]}
    assert not over, f"more than {budget()[tree]}; `python tests/words.py PATH` lists sentences"


@pytest.mark.parametrize(
    ("text", "habits"),
    [
        ('"""Close what is open."""', ["what"]),
        ('"""Say what to do."""', []),
        ('"""What is open?"""', []),
        ('"""Tell whoever asks."""', ["who"]),
        ('"""Wait for who asks."""', ["who"]),
        ('"""Serve a client who asks, who waits."""', []),
        ('"""As `locate`, for readers."""', ["fragment"]),
        ('"""Of the log."""', ["fragment"]),
        ('"""In an empty directory."""', ["fragment"]),
        ('"""For tests, this returns 0."""', []),
        ('"""Open a log.\n\nOf a topic.\n"""', []),
        ("# " + "word " * 26, ["long"]),
        ("# " + "word " * 25 + "\n# word", ["long"]),
        ("# " + "word " * 25, []),
        ("# `what` it is", []),
        ("what = 1", []),
    ],
)
def test_habits_are_found(text: str, habits: list[str], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text + "\n")
    assert [each.habit for each in words.findings_in(path, Count())] == habits
