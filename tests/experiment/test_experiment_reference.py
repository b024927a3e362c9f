"""The reference page of the experiment file is the code's, and what it shows is right."""

import pytest
import yaml

from loopscope.experiment import reference
from loopscope.experiment.link_settings import Link
from loopscope.experiment.model import ExperimentFile
from loopscope.experiment.model_clocks import ClockExchange
from loopscope.experiment.model_trace import Stream
from loopscope.experiment.values import Names

SECTIONS = {section.place: section for section in reference.sections()}


def test_the_committed_page_is_the_code_s(root):
    committed = (root / "docs/reference/experiment-file.md").read_text(encoding="utf-8")
    assert committed == reference.markdown(), (
        "run: python -m loopscope.experiment.reference > docs/reference/experiment-file.md"
    )


def test_every_key_is_described_and_has_an_example():
    keys = [key for section in SECTIONS.values() for key in section.keys]
    assert len(keys) > 200
    assert [key.name for key in keys if not key.description or not key.kind] == []
    assert [key.name for key in SECTIONS[""].keys] == list(ExperimentFile.model_fields)


@pytest.mark.parametrize("place", ["clock", "network.default", "trace.streams.NAME"])
def test_the_examples_are_right(place):
    """Keys that read no file and no other key."""
    models = {
        "clock": ClockExchange,
        "network.default": Link,
        "trace.streams.NAME": Stream,
    }
    for key in SECTIONS[place].keys:
        if key.name not in ("at TIME", "delays", "opportunities"):
            models[place].model_validate(yaml.safe_load(key.example), context=Names())
