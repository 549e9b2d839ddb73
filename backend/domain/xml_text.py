"""XML 1.0 documents as objects, and back: attributes as ``@name``, text next to them as ``#text``, an element that is
there more than once as a list.

What is written reads back as it was, with scalars as text, as far as XML knows the difference: an element without
content is null, a list of one is its element and an empty one is not there. Every function raises ValueError, with a
sentence, for what it cannot read or write.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from xml.parsers import expat

from backend.domain import charsets, json, limits

_TEXT = "#text"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read(data: bytes, charset: str = "", *, trim: bool = False) -> dict[str, Any]:
    """The root element as an object. White space alone between elements is left out, and with ``trim`` that at both
    ends of each text. Declarations of entities and of attributes are rejected, since a few bytes of them could stand
    for any number."""
    import xmltodict

    encoding = None
    if charset:  # it wins over what the document declares (RFC 7303 3)
        data, encoding = charsets.decode(data, charset).encode(), "utf-8"
    try:
        _check(data, encoding)
        document = dict(xmltodict.parse(data, encoding=encoding, strip_whitespace=trim))
    except limits.TooLargeError:
        raise
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise ValueError(f"This is not valid XML: {error}.") from None
    return {name: _without_blanks(value) for name, value in document.items()}


def write(document: Any, root: str) -> bytes:
    """The inverse of ``read``; the document is placed below the element ``root``."""
    import xmltodict

    if isinstance(document, list):
        raise ValueError("A list cannot be written as XML, which has one root: use the step split before.")
    text = str(xmltodict.unparse({root: _writable(document, "")}))
    # A reader takes any line ending for a line feed; this is the only way to write a carriage return (XML 1.0, 2.11).
    return text.replace("\r", "&#13;").encode()


def _check(data: bytes, encoding: str | None) -> None:
    """The library keeps all open elements before it makes the first object of them."""
    depth = 0

    def start(_name: str, _attributes: Any) -> None:
        nonlocal depth
        depth += 1
        limits.check_depth(depth)

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(problem: str) -> Callable[..., None]:
        def handler(*_declaration: Any) -> None:
            raise ValueError(problem)

        return handler

    parser = expat.ParserCreate(encoding)
    parser.ordered_attributes = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.EntityDeclHandler, parser.AttlistDeclHandler = (
        refuse("entities are disabled"),
        refuse("declarations of attributes are disabled"),
    )
    parser.Parse(data, True)


def _without_blanks(value: Any) -> Any:
    """Without the white space between child elements."""
    if isinstance(value, list):
        return [_without_blanks(element) for element in value]
    if not isinstance(value, dict):
        return value
    has_children = any(name != _TEXT and not name.startswith("@") for name in value)
    return {
        name: _without_blanks(part)
        for name, part in value.items()
        if not (name == _TEXT and has_children and isinstance(part, str) and not part.strip())
    }


def _writable(value: Any, place: str) -> Any:
    """The value with its scalars as text, if all of it can be written."""
    if isinstance(value, dict):
        return {_name(name, place): _child(name, part, f"{place}/{name}") for name, part in value.items()}
    if isinstance(value, list):
        if any(isinstance(element, list) for element in value):
            raise ValueError(f"{place} has a list in a list, which XML cannot hold.")
        return [_writable(element, f"{place}/{index}") for index, element in enumerate(value)]
    if value is None:
        return None
    text = json.text(value)
    if found := _FORBIDDEN.search(text):
        where = place or "The message"
        raise ValueError(f"{where} has the character U+{ord(found.group()):04X}, which XML 1.0 cannot hold.")
    return text


def _child(name: str, value: Any, place: str) -> Any:
    if (name == _TEXT or name.startswith("@")) and isinstance(value, dict | list):
        raise ValueError(f"{place} is an object or a list, which no attribute and no text of XML can be.")
    return _writable(value, place)


def _name(name: str, place: str) -> str:
    if name != _TEXT and not _is_name(name.removeprefix("@")):
        shown = ascii(name)[1:-1]
        raise ValueError(f"{place}/{shown} cannot be written: {shown!r} is not a name that XML allows.")
    return name


@lru_cache(10_000)
def _is_name(name: str) -> bool:
    """As the parser has it that reads it back."""
    if re.search(r"[\s/=<>\"'&]", name) or _FORBIDDEN.search(name):
        return False
    parser = expat.ParserCreate()
    try:
        parser.Parse(f"<{name}/>".encode(), True)
    except (expat.ExpatError, UnicodeEncodeError):
        return False
    return True
