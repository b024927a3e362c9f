"""Rows as text in columns, with nothing in it that a terminal could take for a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

GAP = "  "


def printable_lines(value: object) -> list[str]:
    """The lines of a cell. Control characters are escaped, but for the ends of lines."""
    if value is None:
        return [""]
    text = str(value)
    if text.isprintable():
        return [text]
    return ["".join(map(_escaped, line)) for line in text.split("\n")]


def text_table(
    names: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[object]]
) -> Iterator[str]:
    """The lines of a table. `right` says of each column whether it is aligned to the right."""
    cells = [[printable_lines(value) for value in row] for row in rows]
    header = [printable_lines(name) for name in names]
    columns = range(len(names))
    widths = [
        max(_width(line) for row in (header, *cells) for line in row[column]) for column in columns
    ]

    def lines(row: Sequence[Sequence[str]]) -> Iterator[str]:
        for number in range(max(map(len, row), default=0)):
            texts = (cell[number] if number < len(cell) else "" for cell in row)
            padded = (
                " " * (width - _width(text)) + text
                if to_right
                else text + " " * (width - _width(text))
                for text, width, to_right in zip(texts, widths, right, strict=True)
            )
            yield GAP.join(padded).rstrip()

    yield from lines(header)
    yield "─" * (sum(widths) + len(GAP) * (len(names) - 1))
    for row in cells:
        yield from lines(row)


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
