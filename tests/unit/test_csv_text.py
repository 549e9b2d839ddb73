import csv
import io

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.domain import csv_text, limits
from backend.domain.transforms.chain import Chain
from backend.domain.transforms.decode import Decode
from backend.domain.transforms.encode import Encode

texts = st.text(max_size=20) | st.sampled_from(
    ["", '"', ",", ";", "\r", "\n", "a\r\nb", "\0", "'", " ", "\ufeff", '""']
)
rows = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5, unique=True).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, texts)), min_size=1, max_size=4)
)
delimiters = st.characters(exclude_characters='"\r\n\0', exclude_categories=["Cs"])


@given(rows, delimiters)
def test_rows_read_back_as_they_were(documents: list[dict[str, str]], delimiter: str) -> None:
    columns = list(documents[0])
    written = [csv_text.write(document, delimiter, columns) for document in documents]
    assert csv_text.read(b"\r\n".join(written), delimiter, columns) == documents
    header = csv_text.write({name: name for name in columns}, delimiter, columns)
    body = b"\xef\xbb\xbf" + b"\n".join([header, *written, b""])
    assert csv_text.read(body, delimiter, []) == documents
    # Another reader finds one row as well.
    for document, row in zip(documents, written, strict=True):
        read = list(csv.reader(io.StringIO(row.decode(), newline=""), delimiter=delimiter))
        assert read == [[document[name] for name in columns]]


@given(rows, st.sampled_from(["utf-8", "utf-16", "utf-32", "utf-16-le", "utf-16-be"]))
def test_unicode_is_read_in_each_encoding(documents: list[dict[str, str]], charset: str) -> None:
    columns = list(documents[0])
    text = "\n".join(csv_text.write(document, ",", columns).decode() for document in documents)
    assume(not text.startswith("\0"))  # behind the mark of UTF-16 it makes that of UTF-32
    mark = "" if charset in {"utf-16", "utf-32"} else "\ufeff"  # these write their own
    assert csv_text.read((mark + text).encode(charset), ",", columns, charset) == documents
    assert csv_text.read((mark + text).encode(charset), ",", columns) == documents


def test_other_encodings_need_their_charset() -> None:
    latin = "name\nJoão\n".encode("latin-1")
    assert csv_text.read(latin, ",", [], "iso-8859-1") == [{"name": "João"}]
    with pytest.raises(ValueError, match=r"not valid UTF-8: .* at byte 7\. Another encoding needs a charset"):
        csv_text.read(latin, ",", [])
    with pytest.raises(ValueError, match="looks like UTF-16"):
        csv_text.read("naïve".encode("utf-16-le"), ",", [])
    for unknown in ("klingon", "base64", "a\0b"):
        with pytest.raises(ValueError, match="is not known"):
            csv_text.read(latin, ",", [], unknown)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("id,amount,amount", "names the column amount more than once"),
        ("id,,", "Column 2 of the header has no name"),
        (",id", "Column 1 of the header has no name"),
    ],
)
def test_a_header_that_would_lose_values_is_refused(header: str, problem: str) -> None:
    body = f"{header}\n1,2,3\n".encode()
    with pytest.raises(ValueError, match=problem):
        csv_text.read(body, ",", [])
    assert csv_text.read(b"1,2,3", ",", ["a", "b", "c"]) == [{"a": "1", "b": "2", "c": "3"}]


def test_a_value_may_be_as_long_as_a_message() -> None:
    long = "x" * (limits.BODY_BYTES - 100)
    [document] = csv_text.read(f'a\n"{long}"'.encode(), ",", [])
    assert len(document["a"]) == len(long)


@pytest.mark.parametrize("delimiter", ['"', "\r", "\n", "\0", "", ",,"])
def test_delimiters_that_cannot_separate_are_refused(delimiter: str) -> None:
    for step in (Decode, Encode):
        with pytest.raises(ValidationError):
            step.model_validate(
                {"type": step.__name__.lower(), "format": "csv", "columns": ["a"], "delimiter": delimiter}
            )


def test_columns_that_are_read_are_named_once() -> None:
    columns = {"format": "csv", "columns": ["a", "b", "a"]}
    with pytest.raises(ValidationError, match="The column a is listed more than once"):
        Decode.model_validate({"type": "decode", **columns})
    [written] = Chain([Encode.model_validate({"type": "encode", **columns})]).run(b'{"a":1,"b":2}')
    assert written.body == b"1,2,1"


def test_steps_write_and_read_rows() -> None:
    encode = Encode.model_validate({"type": "encode", "format": "csv", "columns": ["a", "b", "c"]})
    [written] = Chain([encode]).run(rb'{"a":"x\ry","b":1.10,"d":0}')
    assert written.body == b'"x\ry",1.10,'
    decode = Decode.model_validate({"type": "decode", "format": "csv", "columns": ["a", "b", "c"]})
    [read] = Chain([decode]).run(written.body)
    assert read.body == rb'{"a":"x\ry","b":"1.10","c":""}'
