"""Messages of programs that record nothing themselves: the keys of ``trace.messages``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from .file_section import Section, word_or_mapping
from .model_network import MessageNumber
from .place import Place
from .values import Integer

_PORT = Integer(1, 65535)


class ProgramMessages(Section):
    """Messages that programs send to a port or from it, told from the kernel's events."""

    protocol: Literal["udp", "tcp"] = Field(
        description="udp: a message is a datagram. tcp: it is what one call writes to a connection."
    )
    to: Annotated[int, _PORT] | None = Field(
        default=None, description="Port that they are sent to, of what receives them."
    )
    from_: Annotated[int, _PORT] | None = Field(
        default=None, alias="from", description="Port that they are sent from, instead of to."
    )
    number: (
        Annotated[Literal["order"], Tag("<word>")] | Annotated[MessageNumber, Tag("<mapping>")]
    ) = Field(
        default=MessageNumber(),
        discriminator=word_or_mapping(
            "number should be {offset: BYTES, width: BYTES, order: little or big}, or order"
        ),
        description="Where a message has its number, which is the id of its events, such as "
        "{offset: 4B, width: 4B, order: big}. order: its "
        "place on its connection, from 0 (tcp). Default: the first eight bytes, little-endian.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        if len(at.keys & {"to", "from"}) != 1:
            at.report("say by which port they are known: to or from, one of them", at_key=True)
        number = at.get("number")
        if number is not None and number.text == "order" and at.text_at("protocol") == "udp":
            number.report("datagrams may be lost or overtake each other: give them a number")
