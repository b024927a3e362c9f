"""The settings of the programs: keys with their units, defaults, and what they may be."""

from __future__ import annotations

from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from loopscope_video.errors import SettingsError, nearest

T = TypeVar("T", bound=BaseModel)


class CameraSettings(BaseModel):
    """A camera on a pan-tilt-zoom head: simulated, or the pictures of a clip or a device."""

    model_config = ConfigDict(extra="forbid")

    duration_s: float = Field(10, gt=0, description="how long it takes pictures, in s")
    file: str | None = Field(None, description="a clip whose pictures it gives; none: a scene's")
    device: int | None = Field(
        None, ge=0, description="or the number of a camera (V4L2), whose pictures come at its rate"
    )
    rate_hz: float = Field(25, gt=0, le=1000, description="pictures per second")
    width: int = Field(640, ge=16, le=8192, description="a picture's width in pixels")
    height: int = Field(480, ge=16, le=8192, description="its height")
    field_of_view_deg: float = Field(
        50, gt=0, lt=120, description="the angle that its width covers, in degrees"
    )
    quality: int = Field(80, ge=1, le=100, description="of the pictures' JPEG, of 100")
    channel: str = Field("frames", min_length=1, description="the channel of its pictures")
    port: int = Field(52381, ge=0, le=65535, description="UDP port of the head (VISCA); 0: any")
    lag_s: float = Field(0.05, gt=0, description="time constant of the motors, in s")
    latency_s: float = Field(0.02, ge=0, description="from a command to the motors, in s")
    max_speed_deg_s: float = Field(60, gt=0, description="the motors' highest speed, in degrees/s")
    amplitude_deg: float = Field(10, ge=0, le=45, description="how far the ball swings, in degrees")
    period_s: float = Field(10, gt=0, description="how long one swing takes, in s")
    ball_deg: float = Field(1.5, gt=0, le=20, description="the ball's radius, in degrees")
    seed: int = Field(1, ge=0, description="chooses the wall's pattern")


class TrackerSettings(BaseModel):
    """A tracker, which finds the ball in a camera's pictures and turns the head after it."""

    model_config = ConfigDict(extra="forbid")

    camera: str = Field("camera", description="the component whose head it turns, in an experiment")
    head: str = Field(
        "127.0.0.1:52381", description="the head's address and port; in an experiment, if given"
    )
    channel: str = Field("frames", min_length=1, description="the channel of the pictures")
    view: str = Field("", description="the channel of pictures with a mark; none: it makes none")
    field_of_view_deg: float = Field(
        50, gt=0, lt=120, description="the angle that a picture's width covers, in degrees"
    )
    max_speed_deg_s: float = Field(60, gt=0, description="the head's highest speed, in degrees/s")
    gain_per_s: float = Field(
        4, gt=0, description="the head's speed for each degree that the ball is off, in 1/s"
    )
    zone_deg: float = Field(
        0, ge=0, description="how far the ball may be off before the head turns, in degrees"
    )
    quality: int = Field(80, ge=1, le=100, description="of the JPEG of marked pictures, of 100")
    patience_s: float = Field(20, gt=0, description="how long it waits for a picture, in s")


class DisplaySettings(BaseModel):
    """A display: pictures for browsers, as MJPEG over HTTP, and in a window."""

    model_config = ConfigDict(extra="forbid")

    channel: str = Field("view", min_length=1, description="the channel of the pictures")
    port: int = Field(8080, ge=0, le=65535, description="TCP port of the page; 0: any")
    address: str = Field("127.0.0.1", description="address at which it listens; empty: at all")
    window: bool = Field(False, description="whether a window of the X server shows them, too")
    patience_s: float = Field(20, gt=0, description="how long it waits for a picture, in s")


class GraphSettings(BaseModel):
    """A graph of nodes that process pictures: `loopscope-video graph FILE`."""

    model_config = ConfigDict(extra="forbid")

    nodes: str = Field("", description="those that this process runs, as A,B; none: all")
    patience_s: float = Field(20, gt=0, description="how long a node waits for an item, in s")
    set: dict[str, dict[str, Any]] = Field(
        {}, description="other settings of nodes than the file's, as {NODE: {SETTING: VALUE}}"
    )

    @field_validator("set", mode="before")
    @classmethod
    def _of_a_command_line(cls, given: object) -> object:
        try:
            return yaml.safe_load(given) if isinstance(given, str) else given
        except yaml.YAMLError:
            raise ValueError("it is no YAML") from None


class PredictSettings(BaseModel):
    """What the delay of the loop may be, by the head's step response."""

    model_config = ConfigDict(extra="forbid")

    gain_per_s: float = Field(4, gt=0, description="as the tracker's")
    rate_hz: float = Field(25, gt=0, le=1000, description="as the camera's")
    lag_s: float = Field(0.05, gt=0, description="as the camera's")
    latency_s: float = Field(0.02, ge=0, description="as the camera's")
    max_speed_deg_s: float = Field(60, gt=0, description="as the camera's")
    processing_s: float = Field(
        0.01,
        ge=0,
        description="from a picture to its command, without network, in s",
    )


def read(model: type[T], config: dict[str, Any]) -> T:
    """The settings of a configuration. Raises SettingsError with a line for each mistake."""
    try:
        return model.model_validate(config)
    except ValidationError as error:
        lines = []
        for each in error.errors():
            key = ".".join(str(part) for part in each["loc"])
            if each["type"] == "extra_forbidden":
                lines.append(f"{key}: no such setting; {nearest(key, model.model_fields)}")
            else:
                lines.append(f"{key}: {each['input']!r} will not do: {each['msg'].lower()}")
        raise SettingsError("\n".join(lines)) from None


def describe(model: type[BaseModel]) -> str:
    """Text with each setting, its default and what it is."""
    rows = [
        (f"--{name} {each.default!r}", each.description)
        for name, each in model.model_fields.items()
    ]
    wide = max(len(left) for left, _ in rows)
    return "\n".join(f"  {left:{wide}}  {right}" for left, right in rows)
