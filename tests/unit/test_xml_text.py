import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain import xml_text

characters = st.characters(
    codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff", include_characters="\t\n\r"
)
texts = st.text(characters, min_size=1, max_size=10)
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_.\-]{0,5}\Z") | st.sampled_from(["é", "名", "a:b"])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    attributes = st.dictionaries(names.map("@{}".format), texts, max_size=3)
    children = st.dictionaries(names, inner | st.lists(inner, min_size=2, max_size=3), min_size=1, max_size=3)
    visible = texts.filter(str.strip)
    return st.one_of(
        st.builds(lambda more, rest: more | rest, attributes, children),
        st.builds(lambda more, rest, text: more | rest | {"#text": text}, attributes, children, visible),
        st.builds(lambda more, text: more | {"#text": text}, attributes.filter(bool), texts),
        attributes.filter(bool),
    )


documents = st.recursive(st.none() | texts, objects, max_leaves=10)


@given(documents)
def test_a_document_reads_back_as_it_was(document: Any) -> None:
    assert xml_text.read(xml_text.write(document, "message")) == {"message": document}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | names, inner, max_size=3),
    max_leaves=10,
)


@given(anything)
def test_whatever_is_written_is_well_formed(document: Any) -> None:
    try:
        written = xml_text.write(document, "message")
    except ValueError:
        return
    assert list(xml_text.read(written)) == ["message"]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"a": "x\0"}, "/a has the character U+0000, which XML 1.0 cannot hold."),
        ({"a": {"b": ["x", "\ufffe"]}}, "/a/b/1 has the character U+FFFE, which XML 1.0 cannot hold."),
        ("\x01", "The message has the character U+0001, which XML 1.0 cannot hold."),
        ({"1a": 1}, "/1a cannot be written: '1a' is not a name that XML allows."),
        ({"": 1}, "/ cannot be written: '' is not a name that XML allows."),
        ({"a": {"-a": 1}}, "/a/-a cannot be written: '-a' is not a name that XML allows."),
        ({"@": 1}, "/@ cannot be written: '@' is not a name that XML allows."),
        ({"@1x": 1}, "/@1x cannot be written: '@1x' is not a name that XML allows."),
        ({"#comment": "x"}, "/#comment cannot be written: '#comment' is not a name that XML allows."),
        ({"a b": 1}, "/a b cannot be written: 'a b' is not a name that XML allows."),
        ({"a b='1'": 1}, "/a b='1' cannot be written: \"a b='1'\" is not a name that XML allows."),
        ({"a/><b": 1}, "/a/><b cannot be written: 'a/><b' is not a name that XML allows."),
        ({"@x": {"y": 1}}, "/@x is an object or a list, which no attribute and no text of XML can be."),
        ({"#text": [1]}, "/#text is an object or a list, which no attribute and no text of XML can be."),
        ({"a": [[1, 2], [3]]}, "/a has a list in a list, which XML cannot hold."),
        ([1, 2], "A list cannot be written as XML, which has one root: use the step split before."),
    ],
    ids=str,
)
def test_what_xml_cannot_hold_is_refused_at_its_place(document: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        xml_text.write(document, "message")


def test_scalars_become_text_and_lists_repeat_their_element() -> None:
    document = {"a": True, "b": 1, "c": [], "d": ["x"], "e": "", "@f": None}
    read = {"a": "true", "b": "1", "d": "x", "e": None, "@f": ""}
    assert xml_text.read(xml_text.write(document, "m")) == {"m": read}


def test_white_space_is_kept_unless_it_only_indents() -> None:
    body = b"<m a=' x '>\n  <b> y </b>\n  <c>\n</c>\n</m>"
    assert xml_text.read(body) == {"m": {"@a": " x ", "b": " y ", "c": "\n"}}
    assert xml_text.read(body, trim=True) == {"m": {"@a": " x ", "b": "y", "c": None}}


def test_the_charset_of_the_content_type_wins() -> None:
    latin = '<?xml version="1.0" encoding="UTF-8"?><m>João</m>'.encode("latin-1")
    assert xml_text.read(latin, "iso-8859-1") == {"m": "João"}
    declared = '<?xml version="1.0" encoding="ISO-8859-1"?><m>João</m>'.encode("latin-1")
    assert xml_text.read(declared) == {"m": "João"}
    assert xml_text.read("<m>João</m>".encode("utf-16")) == {"m": "João"}
    with pytest.raises(ValueError, match="The charset klingon is not known"):
        xml_text.read(declared, "klingon")
