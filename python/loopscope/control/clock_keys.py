"""The keys of clock probes: one for each pair of hosts, made anew for each run."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

# As in crates/clocksync/src/key.rs.
PAIR = b"loopscope clock pair"


class Root:
    """The secret of a host that answers probes. Keys of hosts that probe it are derived from it."""

    def __init__(self, secret: bytes | None = None) -> None:
        """``secret``: 32 bytes; None draws them."""
        self.secret = secrets.token_bytes(32) if secret is None else secret

    def key(self, number: int) -> bytes:
        """The key of the host that probes it under this number: 32 bytes."""
        return hmac.new(self.secret, PAIR + struct.pack("<I", number), hashlib.sha256).digest()
