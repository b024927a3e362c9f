"""Messages of programs that record nothing themselves: the keys of ``trace.messages``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from .file_section import Section, word_or_mapping
from .model_machines import IpAddress
from .model_network import MessageNumber
from .place import Place
from .quantity import SIZE
from .values import Integer, Quantity

_PORT = Integer(1, 65535)


class MessageLength(Section):
    """Where messages on a connection have their length, by which they are told apart."""

    offset: Annotated[int, Quantity(SIZE, "0B", "65535B")] = Field(
        default=0, description="Bytes of the message before it, such as 4B. Default: 0B."
    )
    width: Annotated[int, Quantity(SIZE, "1B", "8B")] = Field(
        default=4, description="Bytes of it, 1B to 8B. Default: 4B."
    )
    order: Literal["little", "big"] = Field(
        default="big",
        description="Whether its most significant byte comes first (big, network order) or its "
        "least significant one (little).",
    )
    uncounted: Annotated[int, Quantity(SIZE, "0B", "1MiB")] = Field(
        default=0,
        description="Bytes of the message that it does not count, such as 4B where it is that of "
        "what follows it. Default: 0B.",
    )


class ProgramMessages(Section):
    """Messages that programs send to a port or from it, told from the kernel's events."""

    protocol: Literal["udp", "tcp"] = Field(
        description="udp: a message is a datagram. tcp: it is what one call writes to a "
        "connection, or what has a length."
    )
    to: Annotated[int, _PORT] | None = Field(
        default=None, description="Port that they are sent to, of what receives them."
    )
    from_: Annotated[int, _PORT] | None = Field(
        default=None, alias="from", description="Port that they are sent from, instead of to."
    )
    address: Annotated[str, IpAddress()] | None = Field(
        default=None,
        description="IP address of the end that has the port: those to or from it alone, such as "
        "a multicast group. Default: any.",
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

    length: MessageLength | None = Field(
        default=None,
        description="Where a message on a connection has its length (tcp). A call may then write "
        "several, and several calls one, but for the length itself. Default: a message is what a "
        "call writes.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        length = at.get("length")
        if length is not None and at.text_at("protocol") == "udp":
            length.report("a datagram is a message: only those of tcp have a length", at_key=True)
        if len(at.keys & {"to", "from"}) != 1:
            at.report("say by which port they are known: to or from, one of them", at_key=True)
        number = at.get("number")
        if number is not None and number.text == "order" and at.text_at("protocol") == "udp":
            number.report("datagrams may be lost or overtake each other: give them a number")
