"""Where and how a study is worked on; what is worked on is the `Plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEAT = 10.0
GRACE = 60.0


@dataclass(frozen=True)
class Site:
    """What a worker needs to know besides the plan.

    Attributes:
        storage: the URL of the study's database.
        runs: the folder that the folders of runs lie in.
        where: fields of `Run` that say where or how fast, such as device.
        beat: seconds between two signs of life of a worker.
        grace: seconds without one after which it is taken for dead.
    """

    storage: str
    runs: Path
    where: Mapping[str, Any] = field(default_factory=dict)
    beat: float = BEAT
    grace: float = GRACE

    def to_mapping(self) -> dict[str, Any]:
        """In values that JSON has."""
        return {**vars(self), "runs": str(self.runs), "where": dict(self.where)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Site:
        """The site of `to_mapping`."""
        return cls(**{**mapping, "runs": Path(mapping["runs"])})
