"""What steps make of messages that they are not meant for, as the reference shows it."""

import pytest

from backend.domain.transforms.base import Transform, WaitingTransform, transforms
from backend.domain.transforms.decode import Decode
from backend.runtime.documentation_pages import KINDS, outcome, steps_page

STEPS = [step for step in transforms if not issubclass(step, WaitingTransform) and step is not Decode]
WITHOUT_ITS_FIELDS = {
    "default": '`{"x":1,"country":"BR"}`',
    "drop_unless": "dropped",
    "encode": "`,`",
    "expression": "refused",
    "keep": "`{}`",
    "set": '`{"x":1,"source":"erp"}`',
    "split": "refused",
    "template": '`{"x":1,"title":"Order  of "}`',
    "uuid": "refused",
    "validate": "refused",
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.example["type"])
def test_no_message_loses_anything_without_a_word(step: type[Transform]) -> None:
    name = step.example["type"]
    assert outcome(step, KINDS["an object"]) == WITHOUT_ITS_FIELDS.get(name, "unchanged")
    others = {outcome(step, document) for kind, document in KINDS.items() if kind != "an object"}
    assert others in ([{"dropped"}] if name == "drop_unless" else [{"unchanged"}, {"refused"}])


def test_the_page_shows_it() -> None:
    page = steps_page()
    assert "| step | an object | a list | a text | a number | true | null |" in page
    assert "| [keep](#keep) | `{}` | refused | refused | refused | refused | refused |" in page
