"""The documentation that ships with txn: its pages, their search, and the generated reference.

`pages/` links to the Markdown of the repository, and the wheel holds copies. `make docs` writes the
same pages with `python -m txn.manual DIRECTORY`, and Sphinx makes the site of them.
"""
