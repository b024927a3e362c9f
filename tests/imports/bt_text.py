"""What babeltrace2 prints of a trace, read back: for comparing it with tables."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Number:
    """As printed: hexadecimal ones are two's complement of an unknown width."""

    text: str


@dataclass(frozen=True)
class Labelled:
    labels: tuple[str, ...]
    value: Number


@dataclass(frozen=True)
class Option:
    """The chosen option of a variant; which one is not printed."""

    value: Any


@dataclass(frozen=True)
class Event:
    ts: int | None
    name: str
    parts: Mapping[str, Any]


PARTS = ("stream.packet.context", "stream.event.context", "event.context", "event.fields")
STAMP = re.compile(r"timestamp = (-?\d+)\.(\d{9}), ")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}


def events(trace: Path) -> list[Event]:
    """All events, in babeltrace2's order."""
    words = ["--clock-gmt", "--clock-seconds", "--names=all", "--fields=all"]
    done = subprocess.run(["babeltrace2", *words, trace], check=True, capture_output=True)
    text = done.stdout.decode(errors="replace")
    return [_event(line) for line in text.split("\n") if line]


def lost(trace: Path) -> dict[str, int]:
    """Events and packets that it says were lost."""
    done = subprocess.run(["babeltrace2", trace], check=True, capture_output=True, text=True)
    found = {"events": 0, "packets": 0}
    for count, what in re.findall(r"Tracer discarded (\d+) (event|packet)", done.stderr):
        # Where LTTng's counter goes back between two packets, it subtracts to below 0 in 64 bits.
        if int(count) < 1 << 63:
            found[f"{what}s"] += int(count)
    return found


def _event(line: str) -> Event:
    stamp = STAMP.match(line)
    ts = int(stamp[1] + stamp[2]) if stamp else None
    place = re.search(r"(?:^|, )name = ", line)
    assert place, line
    rest = line[place.end() :]
    begin = re.search(rf", (?:{'|'.join(map(re.escape, PARTS))}) = ", rest)
    name = rest[: begin.start()] if begin else rest.removesuffix(", ")
    reader = _Reader(rest[begin.start() :] if begin else "")
    parts = {}
    while reader.accept(", "):
        part = next(part for part in PARTS if reader.accept(f"{part} = "))
        parts[part] = reader.value()
    assert reader.at == len(reader.text), line
    return Event(ts, name, parts)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def accept(self, token: str) -> bool:
        found = self.text.startswith(token, self.at)
        self.at += len(token) if found else 0
        return found

    def match(self, pattern: str) -> str | None:
        found = re.compile(pattern).match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else None

    def value(self) -> Any:
        if self.accept("{ }"):
            return {}
        if self.accept("{ "):
            return self.group()
        if self.accept("[ ]"):
            return []
        if self.accept("[ "):
            found = []
            while self.match(r"\[\d+\] = ") is not None:
                found.append(self.value())
                self.accept(", ")
            assert self.accept(" ]"), self.text[self.at :]
            return found
        if self.accept("( "):
            labels: list[str] = []
            while not self.accept(": container = "):
                labels += [self.string()] if self.text[self.at] == '"' else []
                self.match(r"<unknown>|, | ")
            value = Number(self.match(r"[^ ]+") or "")
            assert self.accept(" )"), self.text[self.at :]
            return Labelled(tuple(labels), value)
        if self.text[self.at] == '"':
            return self.string()
        return Number(self.match(r"[-+.\w]+") or "")

    def group(self) -> Any:
        name = self.match(r"[A-Za-z_][A-Za-z_0-9]* = ")
        if name is None:
            chosen = Option(self.value())
            assert self.accept(" }"), self.text[self.at :]
            return chosen
        found = {}
        while name is not None:
            found[name.removesuffix(" = ")] = self.value()
            name = self.match(r"[A-Za-z_][A-Za-z_0-9]* = ") if self.accept(", ") else None
        assert self.accept(" }"), self.text[self.at :]
        return found

    def string(self) -> str:
        quoted = self.match(r'"(?:[^"\\]|\\.)*"')
        assert quoted is not None, self.text[self.at :]

        def plain(found: re.Match[str]) -> str:
            if found[1] is not None:
                return chr(int(found[1], 16))
            return ESCAPES.get(found[2], found[2])

        return re.sub(r"\\(?:x([0-9a-f]{2})|(.))", plain, quoted[1:-1])


def same(theirs: Any, ours: Any) -> bool:
    """Whether a printed value is the one of a table."""
    match theirs:
        case Option(value):
            chosen = [each for each in ours.values() if each is not None]
            return len(chosen) == 1 and same(value, chosen[0])
        case Labelled(labels, value):
            return same(value, ours["value"]) and (" | ".join(labels) or None) == ours["label"]
        case Number(text) if isinstance(ours, float):
            return text == f"{ours:g}"
        case Number(text):
            if re.fullmatch(r"-?\d+", text) and not re.match(r"-?0\d", text):
                return bool(int(text) == ours)
            # Octal begins with 0 alone.
            base = 0 if re.match(r"-?0[xb]", text) else 8
            difference = int(text, base) - ours
            return any(difference % (1 << bits) == 0 for bits in (8, 16, 32, 64))
        case str():
            return bool(theirs == ours)
        case list():
            pairs = zip(theirs, ours, strict=False)
            return len(theirs) == len(ours) and all(same(*pair) for pair in pairs)
        case dict() if not theirs:
            return ours is True
        case dict():
            return theirs.keys() == ours.keys() and all(
                same(value, ours[name]) for name, value in theirs.items()
            )
    raise AssertionError(theirs)
