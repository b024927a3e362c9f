"""The tracker: finds the ball in the newest picture, and turns the head after it."""

from __future__ import annotations

from contextlib import ExitStack

from loopscope_trace import event

from loopscope import stm
from loopscope.phase import Phase, Session
from loopscope_video import sightings
from loopscope_video.errors import SettingsError, VideoError
from loopscope_video.head import STAND, Drive
from loopscope_video.heads import Answers, Controller
from loopscope_video.scene import Optics, Picture
from loopscope_video.settings import TrackerSettings
from loopscope_video.steering import Steering
from loopscope_video.streams import channel, decode, encode, is_last
from loopscope_video.tracker import Spot, Tracker, draw_frame

_commanded = event(
    "tracker",
    "commanded",
    frame="u64",
    description="a command is sent; the id is its sequence number, frame the picture's number",
)


def run(session: Session, settings: TrackerSettings) -> str:
    """Takes part in the phases, and follows the ball. Returns a text of what it has done."""
    frames = channel(settings.channel, puts=False)
    speed = settings.max_speed_deg_s
    done = ""
    with ExitStack() as open_:
        view = (
            open_.enter_context(channel(settings.view, puts=True).output())
            if settings.view
            else None
        )
        into = open_.enter_context(frames.input(lossy=True))
        if view is not None:
            view.derives(into)
        controller: Controller | None = None
        for phase in session:
            if phase.name == "connect":
                address, port = _head_of(phase, settings)
                try:
                    controller = Controller(address, port, (speed, speed))
                except OSError as error:
                    raise VideoError(f"head: {address} port {port}: {error.strerror}") from None
                open_.enter_context(controller)
            elif phase.name == "run":
                assert controller is not None
                done = _Following(settings, controller, view).follow(into)
    return done


def _head_of(phase: Phase, settings: TrackerSettings) -> tuple[str, int]:
    """Address and port of the head: as the settings say, or of the camera in an experiment."""
    if not phase.peers or "head" in settings.model_fields_set:
        address, colon, port = settings.head.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise SettingsError(f"head: {settings.head!r} is not ADDRESS:PORT")
        return address.strip("[]"), int(port)
    camera = phase.peers.get(settings.camera)
    if camera is None or "visca_port" not in camera.values:
        raise SettingsError(f"camera: no component {settings.camera!r} has published a visca_port")
    return camera.address, int(camera.values["visca_port"])


class _Following:
    """The loop from a picture to a command."""

    def __init__(
        self, settings: TrackerSettings, controller: Controller, view: stm.Output | None
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._view = view
        self._steering = Steering(settings.gain_per_s, settings.zone_deg)
        self._tracker = Tracker()
        self._stands = True
        self._pictures = self._without_ball = self._unreadable = 0

    def follow(self, into: stm.Input) -> str:
        """Looks at each newest picture until the end. Raises VideoError without one in time."""
        while True:
            try:
                item = into.unseen(timeout=self._settings.patience_s)
            except stm.NotYet:
                raise VideoError(f"no picture came in {self._settings.patience_s:g} s") from None
            with item:
                time, picture, last = item.time, decode(item.view), is_last(item.view)
            self._pictures += 1
            if picture is None:
                self._unreadable += 1
            else:
                spot = self._tracker.look(time, picture)
                self._command(time, self._answer(time, picture, spot, last))
                self._show(time, picture, spot, last)
            if last:
                return self._text(into.counts(), self._controller.answers)

    def _answer(self, time: int, picture: Picture, spot: Spot | None, last: bool) -> Drive:
        """What the head is to do about a picture; it stands still after the last one."""
        sightings.record(time, spot)
        if spot is None:
            self._without_ball += 1
            return STAND
        height, width = picture.shape[:2]
        optics = Optics(width, height, self._settings.field_of_view_deg)
        drive = self._steering.answer(*optics.angles(spot.x, spot.y))
        return STAND if last else drive

    def _command(self, time: int, drive: Drive) -> None:
        self._controller.collect()
        if drive == STAND and self._stands and self._controller.is_obeyed:
            return
        self._stands = drive == STAND
        _commanded(self._controller.next_sequence, time)
        self._controller.drive(drive)

    def _show(self, time: int, picture: Picture, spot: Spot | None, last: bool) -> None:
        if self._view is None:
            return
        if spot is not None:
            draw_frame(picture, spot)
        self._view.put(time, encode(picture, self._settings.quality, last=last))

    def _text(self, counts: stm.InputCounts, answers: Answers) -> str:
        return (
            f"{self._pictures} pictures, {counts.skipped} passed over, {counts.lost} lost; in "
            f"{self._without_ball} no ball, {self._unreadable} no JPEG; {answers.sent} commands, "
            f"{answers.completed} completed, {answers.refused} refused, "
            f"{answers.undeliverable} undeliverable"
        )
