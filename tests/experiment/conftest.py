from pathlib import Path

import pytest
from hypothesis import settings

# Seeded samples, and no assertion on the machine's speed; a profile from the command line wins.
settings.register_profile("seeded", deadline=None, derandomize=True)
if settings.get_current_profile_name() in ("default", "ci"):
    settings.load_profile("seeded")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root():
    """The project's folder."""
    return ROOT


@pytest.fixture
def write(tmp_path):
    """Writes an experiment file and gives its path."""

    def write_file(text):
        path = tmp_path / "experiment.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


RIGHT = """\
name: right
hosts: [h1, h2]
params: {count: 10, period: 2ms}
network:
  default: {delay: 0ms, mtu: 1400B}
  h1 -> h2: {loss: 0%}
components:
  a: {host: h1, run: loopscope-host stimulus server, with: {count: $count, period: $period}}
  b: {host: h2, run: [client, --to, a]}
phases:
  - {name: connect, timeout: 5s}
  - {name: run, timeout: 60s, measured: true}
trace: {user: ["s:*"]}
measure:
  paths:
    loop: {events: [a/s:out, b/s:in, b/s:out]}
expect:
  - loop.lost == 0
  - loop.p99 < 5ms
"""


@pytest.fixture
def changed(write):
    """The right file with texts replaced, written; each must occur."""

    def change(*replacements):
        text = RIGHT
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new, 1)
        return write(text)

    return change
