"""Writes clock pages and computes their expected readings in exact arithmetic.

It follows schema/clock-page.md and not the crates.
"""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from pathlib import Path

SIZE = 4096
SLOTS = 16
SLOT = 128
CURRENT = 64
FIRST_SLOT = 128
RETIRED = 2**64 - 1
REACH = 2**47

CYCLES, MONOTONIC_RAW = 1, 2

UNKNOWN, SYNCHRONISED, HOLDOVER = 0, 1, 2
NOTHING = [-(2**63), -(2**63), 2**63 - 1]


@dataclass(frozen=True)
class Words:
    """A slot."""

    anchor: int = 1 << 41
    global_ns: int = 1_000_000_000_000
    rate: int = 108_300_000_000_000  # about 2.6 GHz
    drift: int = 108_300
    expires: int = 1 << 62
    below: int = 300
    above: int = 200
    fraction: int = 0x4000_0000
    calibrated: int = 40
    epoch: int = 7
    status: int = SYNCHRONISED
    lease: int = 2**16 - 1
    utc_offset: int = -37_000_000_000
    utc_error: int = 2**64 - 1
    since: int = 0
    apart: int = 0

    def packed(self) -> bytes:
        form = "<QqQQQIIIIIBxHqQQQQQI12x"
        return struct.pack(
            form,
            self.anchor,
            self.global_ns,
            self.rate,
            self.drift,
            self.expires,
            self.below,
            self.above,
            self.fraction,
            self.calibrated,
            self.epoch,
            self.status,
            self.lease,
            self.utc_offset,
            self.utc_error,
            os.getpid(),
            1,
            0,
            self.since,
            self.apart,
        )

    def holds(self, counter: int) -> bool:
        ahead = (self.expires - counter + 2**63) % 2**64 - 2**63
        return (
            ahead > 0
            and (counter >= self.anchor or counter >= self.since)
            and abs(counter - self.anchor) < REACH
            and self.status in (SYNCHRONISED, HOLDOVER)
        )

    def map(self, counter: int) -> list[int]:
        """What the page says of a counter: earliest, best, latest, counter, and so on."""
        if not self.holds(counter):
            return [*NOTHING, counter, 0, 0, UNKNOWN]
        ticks = counter - self.anchor
        unit = Fraction(1, 2**48)
        best = floor(self.global_ns + Fraction(self.fraction, 2**32) + ticks * self.rate * unit)
        grown = floor(abs(ticks) * self.drift * unit)
        widths = [best - self.below - grown, best, best + self.above + grown]
        calibrated = self.calibrated
        if self.is_stale(counter):
            calibrated = min(2**32 - 1, max(calibrated, self.below + grown, self.above + grown))
        return [*widths, counter, calibrated, self.epoch, self.status_at(counter)]

    def is_stale(self, counter: int) -> bool:
        return counter - self.anchor >= self.lease * 2**20

    def status_at(self, counter: int) -> int:
        stale = self.is_stale(counter)
        return HOLDOVER if stale and self.status == SYNCHRONISED else self.status

    def elapsed(self, start: int, end: int) -> list[int]:
        if not (self.holds(start) and self.holds(end)):
            return [*NOTHING, UNKNOWN]
        unit = Fraction(1, 2**48)
        best = floor((end - start) * self.rate * unit + Fraction(1, 2))
        half = floor(abs(end - start) * self.drift * unit) + 2 + self.apart
        return [best - half, best, best + half, self.status_at(max(start, end))]

    def utc(self) -> list[int]:
        offset = 0 if self.utc_error == 2**64 - 1 else self.utc_offset
        return [offset, self.utc_error]


class Page:
    """A page's file."""

    def __init__(self, path: Path, counter: int = CYCLES) -> None:
        self.path = path
        self.number = 0
        boot_id = uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        made = int.from_bytes(os.urandom(7), "little")
        numbers = (2_600_000_000, made, counter)
        header = struct.pack("<8sII16sQQQ", b"LSCLOCK1", 4, SIZE, boot_id.bytes, *numbers)
        new = path.with_suffix(".new")
        new.write_bytes(header.ljust(SIZE, b"\0"))
        new.chmod(0o644)
        new.rename(path)

    def write(self, at: int, content: bytes) -> None:
        with open(self.path, "r+b", buffering=0) as file:
            file.seek(at)
            file.write(content)

    def publish(self, words: Words, until: int = SLOT) -> None:
        """Writes a publication; its number, too, if all of its slot is to be written."""
        self.number += 1
        at = FIRST_SLOT + self.number % SLOTS * SLOT
        self.write(at, words.packed()[:until])
        if until == SLOT:
            self.write(CURRENT, struct.pack("<Q", self.number))
        else:
            self.number -= 1

    def retire(self) -> None:
        self.write(CURRENT, struct.pack("<Q", RETIRED))


def variety() -> list[Words]:
    """Words at the limits of what a page may hold."""
    usual = Words()
    return [
        usual,
        replace(usual, status=HOLDOVER, epoch=2**32 - 1, utc_error=250_000),
        replace(usual, status=UNKNOWN),
        replace(usual, status=9),
        replace(usual, global_ns=-(2**62), rate=1000 * 2**48, drift=2**51 - 1, fraction=2**32 - 1),
        replace(usual, global_ns=2**62, rate=2**38, drift=1, below=2**32 - 1, above=2**32 - 1),
        replace(usual, anchor=2**63 - 5, expires=2**63 + 5, utc_error=0, utc_offset=2**63 - 1),
        replace(usual, expires=usual.anchor + 1000),
        replace(usual, lease=0),
        replace(usual, lease=1),
        replace(usual, since=usual.anchor),
        replace(usual, since=usual.anchor - 12_345),
        replace(usual, apart=118),
        replace(usual, apart=2**32 - 1),
    ]


def counters(words: Words) -> list[int]:
    """Counters around all that happens to a line."""
    near = [words.since, words.anchor, words.expires, words.anchor + words.lease * 2**20]
    far = [words.anchor - REACH, words.anchor + REACH]
    found = {at + d for at in near + far for d in (-1, 0, 1)}
    found |= {words.anchor + d for d in (-(2**46) - 7, -12_345, 999, 123_456_789, 2**46 + 3)}
    return sorted(at for at in found if 0 <= at < 2**64)
