"""What each connector's inputs and outputs say of repeats and losses."""

from typing import Any

import pytest

from backend.domain.capabilities import Capability
from backend.domain.connector import Connector
from backend.runtime.survival import READING, WRITING, survival_of, survival_page, uses_of
from tests.contract.test_connector_suites import own

USES = [use for use in uses_of((*READING, *WRITING)) if use.connector in own]


@pytest.mark.parametrize(("connector", "capability"), USES, ids=lambda part: part.__name__)
def test_each_use_says_what_may_repeat_or_be_lost(
    connector: type[Connector], capability: type[Capability[Any, Any]]
) -> None:
    said = survival_of(capability)
    assert said, f"The description of {capability.__name__} says neither how often a message comes nor what is kept."
    assert f"(../connectors/{connector.type}.md)" in survival_page()
    assert said.replace("|", "\\|") in survival_page()


def test_sentences_about_something_else_are_left_out() -> None:
    class Writes(Capability[Any, Any]):
        """Writes rows. At least once: a row may come again. Names are in Latin letters.

        "Old" rows are kept for a day."""

    assert survival_of(Writes) == 'At least once: a row may come again. "Old" rows are kept for a day.'
