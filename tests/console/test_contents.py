"""Keys and values of any bytes as text, JSON and hexadecimal digits."""

import json
import tracemalloc

import pytest

from txn.console.contents import WHOLE_BYTES, Form, lines, preview


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


@pytest.mark.parametrize(
    "text",
    [
        b'{\n  "a": 1,\n  "a": 2\n}',
        b"[\n  0.30000000000000004441,\n  1e999,\n  -0,\n  1.0E+2,\n  " + b"9" * 5_000 + b"\n]",
        b'[\n  {},\n  [],\n  "a, [b]: \\"c\\" \\\\"\n]',
        b"17",
    ],
)
def test_json_is_shown_as_it_stands(text: bytes) -> None:
    shown, _ = lines(text.replace(b"\n", b" "), Form.JSON)
    assert "\n".join(shown).encode() == text


def test_a_key_that_stands_twice_and_each_cut_are_named() -> None:
    assert lines(b'[{"a":1,"b":2,"a":3}]', Form.JSON)[1] == "An object has the key 'a' twice"
    shown, note = lines(json.dumps([0] * 10_000).encode(), Form.JSON)
    assert (len(shown), note) == (4096, "These are the first 4,096 lines. The download has all")
    shown, note = lines(b'["' + b"x" * 500_000 + b'"]', Form.JSON)
    assert sum(map(len, shown)) < 3 * WHOLE_BYTES
    assert note is not None
    large = lines(b"[" + b" " * (1 << 20) + b"]", Form.JSON)[1] or ""
    assert "larger than 1,048,576 bytes" in large
    assert "first 65,536 of 1,048,578 bytes" in large


def test_escaped_letters_are_read_and_control_characters_stay_escaped() -> None:
    assert lines(rb'["\u00e9\u0000\ud800\n"]', Form.JSON)[0][1] == '  "é\\u0000\ud800\\n"'


def test_a_layout_costs_no_more_than_the_page_shows() -> None:
    deep = b"[" * 900 + b"1," * 60_000 + b"1" + b"]" * 900
    too_deep = "It is nested deeper than 64 levels, so it is shown as text"
    assert (lines(deep, Form.JSON)[1] or "").startswith(too_deep)
    nested = b"[" * 60 + b"1," * 500_000 + b"1" + b"]" * 60
    tracemalloc.start()
    shown, note = lines(nested, Form.JSON)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(map(len, shown)) < 3 * WHOLE_BYTES
    assert note is not None
    assert peak < 64 << 20  # the layout of all items is 62 MB of text, and as many lines


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
    assert "UTF-8" not in (lines(b"x" + cut, Form.TEXT)[1] or "")
    assert lines(b"ok \xc3", Form.TEXT)[1] == note
    both = lines(b"\xff" * WHOLE_BYTES * 2, Form.TEXT)[1] or ""
    assert "UTF-8" in both
    assert "65,536 of 131,072" in both


def test_a_dump_has_offsets_bytes_and_letters() -> None:
    shown, _ = lines(b"0123456789abcdef\x00", Form.HEX)
    assert shown[0].startswith("00000000  30 31")
    assert shown[0].endswith("  0123456789abcdef")
    assert shown[1].startswith("00000010  00 ")
