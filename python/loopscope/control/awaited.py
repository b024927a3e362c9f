"""Components that somebody waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Awaited:
    """The components among ``names`` for which ``is_awaited`` holds now."""

    def __init__(self, names: Iterable[str], is_awaited: Callable[[str], bool]) -> None:
        self._names = tuple(names)
        self._is_awaited = is_awaited
        self._found = 0

    def __contains__(self, name: object) -> bool:
        return name in self._names and self._is_awaited(str(name))

    def all(self) -> list[str]:
        """Their names, in the order that was given."""
        return [name for name in self._names if self._is_awaited(name)]

    def any(self) -> bool:
        """Whether there is one.

        It is asked after each event of hundreds of components, so it begins at the one that it
        found last, which most often is still awaited.
        """
        count = len(self._names)
        for at in range(self._found, self._found + count):
            if self._is_awaited(self._names[at % count]):
                self._found = at % count
                return True
        return False


NOBODY = Awaited((), lambda _: False)
