"""The base of every configuration model."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """An immutable model that refuses unknown keys, so that a typo is an error at its field."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
