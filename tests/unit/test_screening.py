import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backend.apps.config_files.loader import load_all
from backend.domain import limits, screening
from backend.domain.errors import ConfigError

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def errors_of(text: str | bytes) -> dict[str, list[str]]:
    with pytest.raises(ConfigError) as raised:
        screening.load_json(text if isinstance(text, bytes) else text.encode())
    return raised.value.errors


@given(plain)
def test_a_document_is_loaded_as_it_is_or_has_what_cannot_be_stored(document: Any) -> None:
    text = json.dumps(document)
    if "\\u0000" in text:
        assert "U+0000" in str(errors_of(text))
    else:
        assert screening.load_json(text.encode()) == document
        assert screening.load_json(b"\xef\xbb\xbf" + text.encode()) == document


@pytest.mark.parametrize(
    ("text", "path", "part"),
    [
        (r'{"a": [1, {"b": "x\u0000"}]}', "a.1.b", "U+0000"),
        (r'{"a": "\ud800"}', "a", "U+D800"),
        (r'{"a": {"\udc00x": 1}}', "a.\\udc00x", "U+DC00"),
        (r'{"a": {"x\u0000": 1}}', "a.x\\x00", "U+0000"),
        ('{"a": {"b": 1, "b": 2}}', "a.b", "more than once"),
        ('{"a": 1e400}', "a", "out of range"),
        ('{"a": 0.12345678901234567891}', "a", "more digits than can be kept"),
        ('{"a": [1e-99999999999999999999]}', "a.0", "more digits than can be kept"),
        ('{"a": NaN}', "a", "out of range"),
        ('{"a": [-Infinity]}', "a.0", "out of range"),
        (f'{{"a": {"9" * 5000}}}', "a", "out of range"),
        ('{"a": 1', "", "This is not JSON: Expecting ',' delimiter at line 1, column 8."),
        (b'{"a": "\xff"}', "", "UTF-8"),
        ("", "", "This is not JSON"),
        ("[" * 100_000, "", f"nested more than {limits.DEPTH} deep"),
        ("[" * 200 + "]" * 200, "0.0.0", f"nested more than {limits.DEPTH} deep"),
        (f"[{'0,' * screening.VALUES}0]", "", f"more than {screening.VALUES:,} values"),
    ],
    ids=str,
)
def test_what_nothing_can_hold_is_refused_at_its_path(text: str | bytes, path: str, part: str) -> None:
    errors = errors_of(text)
    assert list(errors) == [path]
    assert part in errors[path][0]


@pytest.mark.parametrize(
    "text", ["0.1", "1.10", "1e16", "-2.5E-3", "0.30000000000000004", "5e-324", "9007199254740993", "0e0"]
)
def test_numbers_that_are_kept_pass(text: str) -> None:
    assert screening.load_json(text.encode()) == json.loads(text)
    assert load_all(f"a: {text}") == [{"a": yaml.safe_load(text)}]


def test_surrogates_in_pairs_and_the_deepest_allowed_document_pass() -> None:
    deepest = "[" * limits.DEPTH + "]" * limits.DEPTH
    assert screening.load_json(deepest.encode()) == json.loads(deepest)
    assert screening.load_json(rb'["\ud83d\ude00"]') == ["\U0001f600"]


def test_errors_are_not_without_number() -> None:
    assert len(errors_of(json.dumps({str(number): "\0" for number in range(1000)}))) == 20


@pytest.mark.parametrize(
    ("text", "path", "part"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "f.yaml", "the name c occurs more than once in its object"),
        ("a: .inf", "f.yaml.a", "out of range"),
        ("a: [1.5, +12_345_678_901_234_567.5]", "f.yaml.a.1", "more digits than can be kept"),
        ('a: "x\\0"', "f.yaml.a", "U+0000"),
        ("a: 2024-13-45", "f.yaml", "This is not YAML"),
        (f"a: {'9' * 5000}", "f.yaml", "This is not YAML"),
        ("[" * 5000, "f.yaml", "nested more than"),
        ("&a [*a]", "f.yaml.0.0.0", "nested more than"),
        (
            "\n".join(["a0: &a0 [x]", *(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(9))]),
            "f.yaml",
            f"more than {screening.VALUES:,} values",
        ),
    ],
    ids=str,
)
def test_yaml_is_screened_as_well(text: str, path: str, part: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_all(text, "f.yaml")
    assert list(raised.value.errors) == [path]
    assert part in raised.value.errors[path][0]


def test_a_name_that_replaces_a_merged_one_is_not_repeated() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, x: 4}\n---\n- 1\n"
    merged, numbers = load_all(text)
    assert (merged["b"], merged["c"], numbers) == ({"x": 3, "y": 2}, {"x": 4, "y": 2}, [1])
