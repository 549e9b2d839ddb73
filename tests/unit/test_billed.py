"""Ids of messages, as the table of billed deliveries has them."""

from uuid import UUID

import pytest

from backend.apps.usage.billed import Delivery, message_uuid

ID = "0199f0c2-7d1e-7abc-8def-0123456789ab"


@pytest.mark.parametrize("written", [ID, ID.upper(), ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}"])
def test_an_id_is_the_same_however_it_is_written(written: str) -> None:
    assert message_uuid(written) == ID
    assert Delivery.of(written, "p", "out") == Delivery(ID, "p", "out")


@pytest.mark.parametrize("written", ["", "order 7", f"{ID}\n", f" {ID}", "é" * 40, "\x00"])
def test_any_other_text_has_an_id_of_its_own(written: str) -> None:
    made = message_uuid(written)
    assert str(UUID(made)) == made != ID
    assert made == message_uuid(written) != message_uuid(f"{written}.")
