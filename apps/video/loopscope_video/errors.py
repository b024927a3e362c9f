"""The errors that end a program of the loop."""


class SettingsError(Exception):
    """A setting is unknown or has a value that it cannot have."""


class VideoError(Exception):
    """A program of the loop cannot go on; the text says why."""
