"""What all methods of repair share: the model and its rows, trying a changed model out, the clock, and what is kept."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxqte.answers.verdict import Verdict
from boxqte.basics.budget import TimeBudget
from boxqte.engines.protocol import Status
from boxqte.errors import CheckpointError, ModelError
from boxqte.models.decision import Threshold
from boxqte.models.ensemble import FloatArray, TreeEnsemble
from boxqte.models.imported import ImportedModel
from boxqte.repairing.goals import Asking, Goal, Measured, World, all_met, measured
from boxqte.repairing.trees import sensitive_features
from boxqte.repairing.writing import Written, write_back

VERSION = 1
LEAST_SECONDS = 0.01


class StoppedError(Exception):
    """Time is up, or Ctrl-C: what has been found by then counts."""

    def __init__(self, why: Status):
        super().__init__(str(why))
        self.why = why


@dataclass(frozen=True)
class Step:
    """How far a repair is: what `progress` is called with."""

    method: str
    what: str
    round: int
    lower: float | None
    """A certain lower bound on the measure of the model that was tried last; of several, on the one farthest from its goal."""
    loss: float | None
    seconds: float

    def __str__(self) -> str:
        parts = [f"{self.method}, round {self.round}: {self.what}"]
        if self.lower is not None:
            parts.append(f"measure at least {self.lower:.6f}")
        if self.loss is not None:
            parts.append(f"loss {self.loss:.6f}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Unwritten:
    """A repaired TreeEnsemble, which belongs to no library."""

    imported: ImportedModel

    @property
    def model(self) -> TreeEnsemble:
        return self.imported.ensemble

    def save(self, path: str | Path) -> Path:
        raise ModelError(f"{path}: a TreeEnsemble belongs to no library and has no file format; give the model itself")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A changed model as it would be saved, and what is proved of it."""

    written: Written | Unwritten
    measures: tuple[Measured, ...]
    share: Fraction | None = None
    """How much of the repaired model is in it, where it is a mixture with the original."""
    round: int = 0
    method: str = ""

    @property
    def met(self) -> bool:
        return all_met(self.measures)

    @property
    def distance(self) -> Fraction:
        """How far the worst goal is from being proved; 0 if all are met."""
        away = [
            Fraction(0) if m.verdict is Verdict.HOLDS else m.goal.at_least - (m.lower or Fraction(0))
            for m in self.measures
        ]
        return max(away)


@dataclass(eq=False)
class Workshop:
    """A model under repair."""

    source: Any
    imported: ImportedModel
    goals: tuple[Goal, ...]
    world: World
    X: FloatArray
    """The rows that the repair may look at, in the model's columns."""
    asking: Asking
    clock: TimeBudget
    rng: np.random.Generator
    progress: Callable[[Step], None] | None = None
    keeper: Keeper | None = None
    allow_pickle: bool = False
    threshold: Threshold | None = None
    tried: int = 0
    best: Candidate | None = None
    stopped: Status | None = None
    loss: float | None = None
    seen: list[Candidate] = field(default_factory=list)

    @property
    def ensemble(self) -> TreeEnsemble:
        return self.imported.ensemble

    @property
    def features(self) -> frozenset[int]:
        """The columns of all attributes that some goal calls sensitive."""
        names = {name for goal in self.goals for name in goal.property.sensitive}
        return sensitive_features(self.ensemble, self.world.space, names)

    def say(self, method: str, what: str, round_: int = 0) -> None:
        if self.progress is not None:
            last = self.seen[-1] if self.seen else None
            ends = None if last is None else min((m.bounds.lower for m in last.measures if m.bounds), default=None)
            self.progress(Step(method, what, round_, ends, self.loss, self.clock.used))

    def seconds(self, most: float | None = None) -> float | None:
        """What a search may take; raises once there is nothing left."""
        left = self.clock.left
        if left <= LEAST_SECONDS:
            raise StoppedError(Status.TIME)
        limits = [limit for limit in (None if self.clock.seconds is None else left, most) if limit is not None]
        return min(limits, default=None)

    def written(self, edited: TreeEnsemble, origins: Sequence[int] | None = None) -> Written | Unwritten:
        """The model with these trees, as its library keeps it, read again."""
        if isinstance(self.source, TreeEnsemble | ImportedModel):
            return Unwritten(ImportedModel(edited, "TreeEnsemble"))
        return write_back(
            self.source,
            self.imported,
            edited,
            origins=origins,
            allow_pickle=self.allow_pickle,
            threshold=self.threshold,
        )

    def try_out(
        self,
        edited: TreeEnsemble,
        origins: Sequence[int] | None = None,
        *,
        goals: Sequence[Goal] | None = None,
        until_decided: bool = True,
        most: float | None = None,
        share: Fraction | None = None,
        round_: int = 0,
        method: str = "",
    ) -> Candidate:
        """Measure a changed model as saved and read again."""
        written = self.written(edited, origins)
        found = []
        for goal in self.goals if goals is None else goals:
            asking = self.asking.within(self.seconds(most))
            found.append(measured(written.imported, goal, self.world, asking, until_decided=until_decided))
            if found[-1].status is Status.INTERRUPTED:
                self.keep(Candidate(written, tuple(found), share, round_, method), whole=len(found) == len(self.goals))
                raise StoppedError(Status.INTERRUPTED)
        candidate = Candidate(written, tuple(found), share, round_, method)
        self.tried += 1
        self.keep(candidate)
        return candidate

    def keep(self, candidate: Candidate, *, whole: bool = True) -> None:
        """Remember a candidate if it is the best so far: met with the least change, or nearest to it."""
        if not whole:
            return
        self.seen.append(candidate)
        best = self.best
        if best is None:
            self.best = candidate
        elif best.met:
            less = (candidate.share or Fraction(1)) < (best.share or Fraction(1))
            self.best = candidate if candidate.met and less else best
        elif candidate.distance <= best.distance:
            self.best = candidate


class Keeper:
    """The checkpoint of a repair: a file that is replaced as a whole after every round."""

    def __init__(self, path: Path, identity: Mapping[str, Any]):
        self.path, self.identity = path, json.loads(json.dumps(dict(identity)))
        self.state: dict[str, Any] = {}
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        if path.exists():
            self._load()

    def _load(self) -> None:
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            head = json.loads(bytes(arrays.pop("head")).decode())
            version, identity, state = head["version"], head["identity"], head["state"]
        except (OSError, ValueError, LookupError, TypeError, EOFError) as error:
            raise CheckpointError(
                f"{self.path}: not a checkpoint of boxqte repair ({type(error).__name__}); give another file"
            ) from None
        if version != VERSION:
            raise CheckpointError(f"{self.path}: version {version} of the format, this one reads {VERSION}")
        for field_, asked in self.identity.items():
            if identity.get(field_) != asked:
                raise CheckpointError(
                    f"{self.path}: of another repair: its {field_} is not the one here; give another file"
                )
        self.state, self.arrays = state, arrays

    def save(self) -> None:
        head = {"version": VERSION, "identity": self.identity, "state": self.state}
        buffer = io.BytesIO()
        everything: dict[str, Any] = {"head": np.frombuffer(json.dumps(head).encode(), np.uint8), **self.arrays}
        np.savez(buffer, **everything)
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            with open(beside, "wb") as file:
                file.write(buffer.getvalue())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be written: {error.strerror}") from None
