"""Intervals around whole functions."""

from __future__ import annotations

import functools
import inspect
import itertools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any

    from ._core import Interval

    Function = Callable[..., Any]
    # Finds the id or key of a call in its arguments.
    Find = Callable[[tuple[Any, ...], dict[str, Any]], Any]

# Numbers of the calls whose steps may interleave on one thread.
_calls = itertools.count(1)


def decorate(interval: Interval, function: Function, id: str | None) -> Function:
    """The function with an interval from its call to its return, or from first step to last.

    ``id`` names the argument that is the record's id. Raises ValueError if the function has none.
    """
    find = None if id is None else _argument(function, id)
    key = find or _next_call
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutine(interval, function, key)
    elif inspect.isasyncgenfunction(function):
        wrapper = _async_generator(interval, function, key)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(interval, function, key)
    elif find:
        wrapper = _with_id(interval, function, find)
    else:
        wrapper = _plain(interval, function)
    return functools.wraps(function)(wrapper)


def _plain(interval: Interval, function: Function) -> Function:
    def wrapper(*arguments: Any, **named: Any) -> Any:
        with interval():
            return function(*arguments, **named)

    return wrapper


def _with_id(interval: Interval, function: Function, id: Find) -> Function:
    def wrapper(*arguments: Any, **named: Any) -> Any:
        with interval(id=id(arguments, named)):
            return function(*arguments, **named)

    return wrapper


def _coroutine(interval: Interval, function: Function, key: Find) -> Function:
    async def wrapper(*arguments: Any, **named: Any) -> Any:
        with interval(key=key(arguments, named)):
            return await function(*arguments, **named)

    return wrapper


def _generator(interval: Interval, function: Function, key: Find) -> Function:
    def wrapper(*arguments: Any, **named: Any) -> Generator[Any, Any, Any]:
        with interval(key=key(arguments, named)):
            return (yield from function(*arguments, **named))

    return wrapper


def _async_generator(interval: Interval, function: Function, key: Find) -> Function:
    async def wrapper(*arguments: Any, **named: Any) -> AsyncGenerator[Any, Any]:
        with interval(key=key(arguments, named)):
            inner = function(*arguments, **named)
            step = inner.__anext__()
            try:
                while True:
                    value = await step
                    # What `yield from` does for a generator.
                    try:
                        step = inner.asend((yield value))
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = inner.athrow(error)
            except StopAsyncIteration:
                return
            finally:
                await inner.aclose()

    return wrapper


def _next_call(arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
    return next(_calls)


def _argument(function: Function, name: str) -> Find:
    parameters = inspect.signature(function).parameters
    parameter = parameters.get(name)
    if parameter is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ValueError(f"{function.__qualname__} has no argument {name!r} that could be the id")
    place = list(parameters).index(name)
    by_place = parameter.kind is not parameter.KEYWORD_ONLY
    # A call without an argument that has no default is the function's error to raise.
    default = 0 if parameter.default is parameter.empty else parameter.default

    def find(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if by_place and place < len(arguments):
            return arguments[place]
        return named.get(name, default)

    return find
