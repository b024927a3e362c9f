"""Experiments built in Python, with the keys of the experiment file."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscope.experiment import Experiment as Plan
from loopscope.experiment import ExperimentErrors, Problem

if TYPE_CHECKING:
    from typing_extensions import Self


class Experiment:
    """An experiment with the keys of the experiment file, given as Python values.

    Values are written as in the file: texts with units such as ``"5ms"``, numbers, lists and
    mappings. Nothing is checked here; `loopscope.check` lists the mistakes, with the messages
    that a file gets, and `loopscope.run` stores the experiment as YAML with its run.

    Args:
        folder: Where programs such as ``./loop`` and other files that the experiment names are.
        keys: The keys of the experiment file.

    Raises TypeError where a value has no form in an experiment file.

    Examples:
        >>> import loopscope as ls
        >>> own = ls.Experiment(
        ...     name="own",
        ...     hosts=["h1"],
        ...     components={"ping": {"host": "h1", "run": "true", "start": "run"}},
        ...     phases=[{"name": "run", "timeout": "5s"}],
        ... )
        >>> print(own.to_yaml())
        name: own
        hosts: [h1]
        components:
          ping: {host: h1, run: 'true', start: run}
        phases:
        - {name: run, timeout: 5s}
        <BLANKLINE>
        >>> ls.check(own)
        []
        >>> [str(each.message) for each in ls.check(own.replace(phase=[]))]
        ["unknown key 'phase'"]
    """

    def __init__(self, *, folder: str | Path = ".", **keys: Any) -> None:
        from loopscope.experiment.yaml_text import yaml_text

        yaml_text(keys)  # raises TypeError
        self._keys = copy.deepcopy(keys)
        self.folder = Path(folder).absolute()
        """Where programs and other files that the experiment names are."""

    @classmethod
    def from_file(cls, file: str | Path) -> Self:
        """The experiment of a file, to be changed.

        Raises ExperimentErrors where the file cannot be read as YAML.

        Examples:
            >>> loop = ls.Experiment.from_file("experiments/pipeline.yaml")
            >>> short = loop.replace(params={**loop.keys["params"], "count": 100})
            >>> short.keys["params"]["count"]
            100
        """
        from loopscope.experiment.document import read

        text, problems = read(file)
        if text is None:
            raise ExperimentErrors(problems)
        return cls.from_yaml(text, folder=Path(file).absolute().parent, file=str(file))

    @classmethod
    def from_yaml(
        cls, text: str, *, folder: str | Path = ".", file: str = "experiment.yaml"
    ) -> Self:
        """The experiment of a file's text; messages call the file ``file``.

        Raises ExperimentErrors where the text is not YAML with keys at its top.
        """
        from loopscope.experiment import yaml_tree
        from loopscope.experiment.yaml_text import spelled_value

        tree, problems = yaml_tree.read(text, file, may_be_null=lambda path: True)
        if tree is not None and not isinstance(tree, yaml_tree.Mapping):
            problems = [Problem(file, 1, 1, "", "the file should be a mapping of keys to values")]
        if not isinstance(tree, yaml_tree.Mapping) or problems:
            raise ExperimentErrors(problems)
        made = cls(folder=folder)
        made._keys = spelled_value(tree)
        return made

    @property
    def keys(self) -> dict[str, Any]:
        """The keys and their values, as a copy."""
        return copy.deepcopy(self._keys)

    @property
    def name(self) -> str:
        """The experiment's name; empty where it has none."""
        return str(self._keys.get("name", ""))

    def replace(self, **keys: Any) -> Self:
        """A copy with these keys instead of its own; a value of None leaves a key out."""
        every = {**self._keys, **keys}
        left = {key: value for key, value in every.items() if value is not None}
        return type(self)(folder=self.folder, **left)

    def to_yaml(self) -> str:
        """The experiment as the text of an experiment file."""
        from loopscope.experiment.yaml_text import yaml_text

        return yaml_text(self._keys)

    def save(self, file: str | Path) -> Path:
        """Writes the experiment file, which names other files relative to its own folder."""
        Path(file).write_text(self.to_yaml(), encoding="utf-8")
        return Path(file)

    def plan(self, params: Mapping[str, str]) -> Plan:
        """The plan of the experiment with these parameters.

        Raises ExperimentErrors.
        """
        from loopscope.api.checking import load

        try:
            made = load(self._file, params, self.to_yaml())
        except ExperimentErrors as errors:
            raise ExperimentErrors(self._placed(errors.problems)) from None
        return replace(made, warnings=tuple(self._placed(made.warnings)))

    def problems(self, params: Mapping[str, str]) -> list[Problem]:
        """Its mistakes and warnings, with these parameters."""
        from loopscope.api.checking import check

        return self._placed(check(self._file, params, self.to_yaml())[0])

    @property
    def _file(self) -> Path:
        """The file that would have this text; there is none."""
        return self.folder / "experiment.yaml"

    def _placed(self, problems: list[Problem] | tuple[Problem, ...]) -> list[Problem]:
        """The problems without lines, which no file has."""
        own, label = str(self._file), f"experiment {self.name}".strip()
        return [
            replace(each, file=label, line=0, column=0) if each.file == own else each
            for each in problems
        ]

    def __repr__(self) -> str:
        return f"Experiment(name={self.name!r}, keys={list(self._keys)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Experiment):
            return NotImplemented
        return (self._keys, self.folder) == (other._keys, other.folder)

    __hash__ = None  # type: ignore[assignment]  # its keys may hold lists
