"""The keys of clock probes."""

from __future__ import annotations

import hashlib
import hmac

from loopscope.control.clock_keys import Root


def test_keys_of_pairs_are_those_that_agents_make() -> None:
    """crates/clocksync/src/key.rs has the same numbers."""
    root = Root(bytes([7]) * 32)
    code = hmac.new(root.key(1), b"x", hashlib.sha256).hexdigest()[:32]
    assert code == "9dc68c695174eadc7a59ead66d0cb52b"
    assert root.key(1) != root.key(2)
    assert Root().secret != Root().secret
