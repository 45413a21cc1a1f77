"""The settings of Sphinx, for `make docs`."""

from importlib.metadata import version as version_of
from pathlib import Path

project = "txn"
author = "the authors of txn"
version = release = version_of("txn")

extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"txn {release}"
html_copy_source = False
html_show_sphinx = False
html_search_scorer = str(Path(__file__).parent / "scorer.js")
