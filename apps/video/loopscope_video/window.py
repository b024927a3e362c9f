"""A window of an X server in which pictures are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cv2
import numpy as np
from loopscope_trace import event

from loopscope_video.errors import VideoError
from loopscope_video.scene import Picture

_drawn = event(
    "display", "drawn", description="the X server has drawn a picture; the id is its number"
)
# A larger picture is made smaller until it takes this share of the screen.
_SHARE = 0.9


class Window:
    """A window, for the thread that has opened it."""

    def __init__(self, title: str) -> None:
        """Opens the window. Raises VideoError where there is no X server, or Python has no Tk."""
        try:
            import tkinter
        except ModuleNotFoundError:
            raise VideoError(
                "window: this Python has no tkinter; on Debian or Ubuntu it is in the package "
                "python3-tk"
            ) from None
        try:
            self._root = tkinter.Tk(className="loopscope-video")
        except tkinter.TclError as error:
            raise VideoError(f"window: {error}; DISPLAY has to name an X server") from None
        self._root.title(title)
        self._root.resizable(False, False)
        self._is_open = True
        self._root.protocol("WM_DELETE_WINDOW", self._end)
        for key in ("<Escape>", "q"):
            self._root.bind(key, lambda _: self._end())
        self._image = tkinter.PhotoImage(master=self._root)
        tkinter.Label(self._root, image=self._image, borderwidth=0).pack()
        self._most = (
            _SHARE * self._root.winfo_screenwidth(),
            _SHARE * self._root.winfo_screenheight(),
        )

    def show(self, number: int, picture: Picture, title: str | None = None) -> bool:
        """Shows a picture of three colours or one. Returns False when its user has closed it."""
        if self._is_open:
            self._root.update()
        if not self._is_open:
            return False
        if title is not None:
            self._root.title(title)
        height, width = picture.shape[:2]
        share = min(1.0, self._most[0] / width, self._most[1] / height)
        if share < 1:
            size = (max(1, int(width * share)), max(1, int(height * share)))
            scaled = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
            picture = scaled.astype(np.uint8, copy=False)
        # Tk reads the portable formats, whose colours are red, green, blue as in OpenCV's files.
        done, encoded = cv2.imencode(".pgm" if picture.ndim == 2 else ".ppm", picture)
        assert done
        height, width = picture.shape[:2]
        self._image.configure(data=encoded.tobytes(), width=width, height=height)
        self._root.update()
        # The server answers this question after it has drawn the picture.
        self._root.winfo_pointerx()
        _drawn(number)
        return True

    def close(self) -> None:
        """Removes the window."""
        self._is_open = False
        del self._image
        self._root.destroy()

    def _end(self) -> None:
        self._is_open = False
        self._root.withdraw()


@contextmanager
def opened(title: str) -> Iterator[Window]:
    """A window for the duration of a block. Raises VideoError."""
    window = Window(title)
    try:
        yield window
    finally:
        window.close()
