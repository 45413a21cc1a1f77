"""The pictures of docs/console.md are those that `make screenshots` makes."""

import re
import struct
from pathlib import Path

from console.pages_shown import BYTES_MAX, IMAGES, PICTURES, WIDTH

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_each_picture_of_the_chore_with_its_words() -> None:
    text = (DOCS / "console.md").read_text()
    shown = re.findall(r"!\[([^\]]+)\]\(images/console/(\w+)\.png\)", text)
    assert shown == [(words, name) for name, (_, words) in PICTURES.items()]
    assert sorted(path.stem for path in IMAGES.iterdir()) == sorted(PICTURES)


def test_each_picture_is_small_and_has_a_palette() -> None:
    for name in PICTURES:
        content = (IMAGES / f"{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG"), name
        width, _, _, color_type = struct.unpack_from(">IIBB", content, 16)
        assert (width, color_type) == (WIDTH, 3), name
        assert len(content) <= BYTES_MAX, name
