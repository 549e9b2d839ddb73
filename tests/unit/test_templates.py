import pytest

from backend.domain.paths import PathError
from backend.domain.templates import MissingFieldError, check, compile_text, compile_value

ORDER = {"order": {"id": 7, "tags": ["a", "b"]}, "name": "Ana"}


def test_texts_have_the_values_in_them() -> None:
    assert compile_text("{{ name }} ordered {{order.id}}: {{/order/tags}}")(ORDER) == 'Ana ordered 7: ["a","b"]'
    assert compile_text("nothing")(ORDER) == "nothing"
    assert compile_text("{{none}}!", missing="")(ORDER) == "!"
    with pytest.raises(MissingFieldError, match=r"no field order\.none\."):
        compile_text("{{order.none}}")(ORDER)


def test_values_keep_their_type_where_a_place_stands_alone() -> None:
    template = {"id": "{{order.id}}", "text": "no. {{order.id}}", "list": ["{{order.tags}}", 1, None]}
    assert compile_value(template)(ORDER) == {"id": 7, "text": "no. 7", "list": [["a", "b"], 1, None]}
    assert compile_value("{{name}}{{name}}")(ORDER) == "AnaAna"
    with pytest.raises(MissingFieldError):
        compile_value([{"a": "{{none}}"}])(ORDER)


def test_a_place_must_be_a_path() -> None:
    for template in ("{{a..b}}", {"a": ["{{a..b}}"]}):
        with pytest.raises(PathError):
            check(template)
