"""The base of every section of the experiment file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping with fixed keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
