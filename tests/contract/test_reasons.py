"""Every reason has a label in every language of the console."""

import json

import pytest

from backend.domain.reasons import Reason
from backend.runtime.layout import ROOT


@pytest.mark.parametrize("language", ["en", "pt-BR"])
def test_every_reason_has_a_label(language: str) -> None:
    labels = json.loads((ROOT / f"frontend/src/locales/{language}.json").read_text())["reasons"]
    assert {str(reason) for reason in Reason} <= labels.keys()
