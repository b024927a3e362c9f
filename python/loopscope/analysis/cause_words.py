"""The words of a cause, in which processors and threads are known by themselves.

Causes that differ in their processors, or in which thread of a component it was, are of one kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from loopscope.analysis.kernel_causes import WhyPart

_LISTED = 3
"""Names that a list in a text has."""


class Named(NamedTuple):
    """A processor or a thread in a cause."""

    text: str
    general: str
    """What stands for it where its cause is told of many messages: the thread's component."""
    name: str
    """What a list has for it."""


Words = tuple[str | Named, ...]
"""A cause; causes of one kind have the same number of words."""
Kind = tuple[str, tuple[str, ...]]
"""The name of some parts, and the general words of their causes."""


class CauseText(NamedTuple):
    """The text of causes of one kind."""

    cause: str
    """With the processor or thread where that is always the same one."""
    several: tuple[tuple[str, ...], ...]
    """The names of each of the others, those that held for longest first."""

    def __str__(self) -> str:
        """With a list of the processors and threads: `t1 waited behind cc [cpu0, cpu1]`."""
        more = "; ".join(
            f"{', '.join(of[:_LISTED])}{', …' if len(of) > _LISTED else ''}" for of in self.several
        )
        return f"{self.cause} [{more}]" if more else self.cause


def cause_words(*words: str | Named | Words) -> Words:
    """The words of a cause without a gap; texts that follow each other are one."""
    found: list[str | Named] = []
    for word in words:
        for each in (word,) if isinstance(word, str | Named) else word:
            if isinstance(each, str) and found and isinstance(found[-1], str):
                found[-1] += each
            elif each != "":
                found.append(each)
    return tuple(found)


def text_of(words: Words) -> str:
    """A cause as the evidence for one message has it."""
    return "".join(each if isinstance(each, str) else each.text for each in words)


def by_kind(parts: Iterable[WhyPart]) -> dict[Kind, Counter[Words]]:
    """For how long each cause held, ns, by its kind."""
    found: dict[Kind, Counter[Words]] = defaultdict(Counter)
    for part in parts:
        general = tuple(each if isinstance(each, str) else each.general for each in part.words)
        found[part.name, general][part.words] += part.ns
    return dict(found)


def summed_up(causes: Mapping[Words, int]) -> CauseText:
    """What is told of causes of one kind, of which each held for some ns."""
    texts, several = [], []
    for place in zip(*causes, strict=True):
        first = place[0]
        if isinstance(first, str):
            texts.append(first)
        elif len({each.text for each in place}) == 1:
            texts.append(first.text)
        else:
            texts.append(first.general)
            held: Counter[str] = Counter()
            for each, ns in zip(place, causes.values(), strict=True):
                held[each.name] += ns
            several.append(tuple(name for name, _ in held.most_common()))
    return CauseText("".join(texts), tuple(several))


def is_meant(kind: Kind, causes: Iterable[Words], text: str) -> bool:
    """Whether a text is part of what may be told of a kind's causes, with the name before it."""
    text = text.partition(" [")[0]
    return any(
        text in f"{kind[0]}: {''.join(each)}"
        for words in causes
        for each in product(
            *((word,) if isinstance(word, str) else {word.general, word.text} for word in words)
        )
    )
