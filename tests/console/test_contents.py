"""Keys and values of any bytes as text, JSON and hexadecimal digits."""

import json

import pytest

from txn.console.pages.topics.contents import WHOLE_BYTES, Form, lines, preview


def test_no_content_is_null_in_every_form() -> None:
    assert {preview(None, form) for form in Form} == {"null"}
    assert {lines(None, form) for form in Form} == {(("null",), None)}


def test_a_preview_is_short_and_says_that_there_is_more() -> None:
    large = b"x" * (10 << 20)
    for form in Form:
        shown = preview(large, form)
        assert len(shown) < 200
        assert shown.endswith("…")
    assert preview(b"7 apples", Form.TEXT) == "7 apples"
    assert preview(b"\x00\xff", Form.HEX) == "00 ff"


def test_json_is_laid_out_and_other_text_is_named() -> None:
    assert lines(b'{"a":[1]}', Form.JSON) == (["{", '  "a": [', "    1", "  ]", "}"], None)
    shown, note = lines(b"{", Form.JSON)
    assert (list(shown), note) == (["{"], "This is no JSON, so it is shown as text")
    deep = b"[" * 100_000
    assert lines(deep, Form.JSON)[1] is not None
    wide = json.dumps(list(range(100_000))).encode()
    assert len(lines(wide, Form.JSON)[0]) <= WHOLE_BYTES


@pytest.mark.parametrize("form", list(Form))
def test_ten_megabytes_are_cut_and_the_note_has_their_number(form: Form) -> None:
    shown, note = lines(b"y" * (10 << 20), form)
    assert sum(map(len, shown)) < 8 * WHOLE_BYTES
    assert note is not None
    assert "10,485,760 bytes" in note


def test_bytes_that_are_no_utf8_are_named_but_a_cut_letter_is_not() -> None:
    shown, note = lines(b"ok \xff", Form.TEXT)
    assert (shown, note) == (
        ["ok \\xff"],
        "These bytes are no UTF-8. The others stand as \\x and two digits",
    )
    cut = "é".encode() * WHOLE_BYTES
    assert lines(b"x" + cut, Form.TEXT)[1] != note


def test_a_dump_has_offsets_bytes_and_letters() -> None:
    shown, _ = lines(b"0123456789abcdef\x00", Form.HEX)
    assert shown[0].startswith("00000000  30 31")
    assert shown[0].endswith("  0123456789abcdef")
    assert shown[1].startswith("00000010  00 ")
