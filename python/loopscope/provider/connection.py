"""A connection to one service of an agent, over the agent's Unix socket."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from loopscope.provider.printable import printable
from loopscope.provider.untrusted import LONGEST_TEXT, clean

MAX_MESSAGE = 64 << 20
# Bytes of an answer that may be under way, or not yet read: 40 MB/s where a round trip over ssh
# takes 0.1 s.
UNDER_WAY = 4 << 20


class AgentError(Exception):
    """An agent refused or failed a request; ``what`` is the agent's own text."""

    def __init__(self, host: str, what: str) -> None:
        self.host = host
        self._what = what
        super().__init__(host, what)

    @property
    def what(self) -> str:
        """Why, without the host."""
        return self._what

    def __str__(self) -> str:
        return f"host {self.host}: {self.what}"


class AgentLost(AgentError):
    """The connection to an agent has ended.

    The provider of the host may know why only a moment later, so the text is made when it is read.
    """

    def __init__(self, host: str, why: Callable[[], str]) -> None:
        super().__init__(host, "")
        self._why = why

    @property
    def what(self) -> str:
        """Why, without the host."""
        return self._why()


class Connection:
    """Asks one service of an agent. Every method raises AgentError with what the agent said."""

    def __init__(
        self,
        host: str,
        socket: Path | str,
        service: str,
        messages: ModuleType,
        lost: Callable[[], str],
        silence_s: float | None = None,
    ) -> None:
        """Connects at the first request. ``lost`` says why the connection has ended.

        ``service``: its full name. ``messages``: the generated module that has its replies.
        ``silence_s``: the connection ends when the agent gives no sign of life for so long; None:
        that is not looked at.
        """
        self.host = host
        self._service = service
        self._messages = messages
        self._why_lost = lost
        self._ended = False
        self.answered_ns = 0
        """The agent answered at this instant of CLOCK_MONOTONIC here, or later; 0: never."""
        # Rust's http refuses the default authority, which is the socket's escaped path.
        options = [
            ("grpc.default_authority", "localhost"),
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            # Without this gRPC pings the agent when something comes from it, to learn how much may
            # be under way: a fifth of what a request costs.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", UNDER_WAY),
        ]
        if silence_s is not None:
            # A ping after half of it, which has the other half for its answer.
            half_ms = round(silence_s * 500)
            options += [
                ("grpc.keepalive_time_ms", half_ms),
                ("grpc.keepalive_timeout_ms", half_ms),
                ("grpc.http2.ping_timeout_ms", half_ms),
                # However long nothing else was sent.
                ("grpc.http2.max_pings_without_data", 0),
            ]
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)
        self._calls: dict[str, Any] = {}

    def lost(self) -> AgentLost:
        """The error that the connection has ended."""
        return AgentLost(self.host, self._why_lost)

    async def close(self) -> None:
        """Closes the connection; the agent itself goes on."""
        await self._channel.close()

    async def ask(self, method: str, request: Any, timeout: float) -> Any:
        """The reply to a request, within ``timeout`` seconds."""
        self._expect_connected()
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self._channel.unary_unary(
                f"/{self._service}/{method}", request_serializer=_serialised
            )
        asked_ns = time.monotonic_ns()
        try:
            content = await call(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                what = f"its agent has not answered {method} within {timeout:g} s"
                raise AgentError(self.host, what) from None
            raise self._error(error) from None
        # It answered after it was asked.
        self.answered_ns = max(self.answered_ns, asked_ns)
        return self.parsed(getattr(self._messages, f"{method}Reply"), content)

    async def exchange(self, method: str, requests: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        """What comes while requests are sent as they come, not yet parsed."""
        self._expect_connected()
        begin: Any = self._channel.stream_stream(
            f"/{self._service}/{method}", request_serializer=_serialised
        )
        call = begin(requests)
        try:
            async for content in call:
                yield content
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None
        finally:
            # The task that sends requests would keep the connection open.
            call.cancel()

    def parsed(self, kind: Any, content: bytes) -> Any:
        """A message of the agent, fit to be used and shown.

        grpc would print a traceback where it cannot be read, and return None.
        """
        try:
            message = kind.FromString(content)
        except DecodeError:
            raise AgentError(
                self.host, f"its agent sends what is no {kind.DESCRIPTOR.name}"
            ) from None
        clean(message)
        return message

    def _expect_connected(self) -> None:
        """Raises AgentLost when the connection has ended: there is no second one."""
        if self._ended:
            raise self.lost()

    def _error(self, error: grpc.aio.AioRpcError) -> AgentError:
        """The agent's message, or that it does not answer any more."""
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            self._ended = True
            return self.lost()
        details = printable((error.details() or "")[:LONGEST_TEXT])
        # Some texts of agents begin with the host, as this error's does.
        details = details.removeprefix(f"host {self.host}: ")
        return AgentError(self.host, details or str(error.code().name))


def _serialised(message: Any) -> bytes:
    content: bytes = message.SerializeToString()
    return content
