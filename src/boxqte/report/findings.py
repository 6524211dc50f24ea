"""What a report shows of a result beyond its bounds: regions as rules, profiles, the flip matrix and example pairs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A region: conditions that hold together, and the share of all counterexamples that lie in it."""

    conditions: tuple[str, ...]
    mass: float
    share: float
    density: float | None = None
    """How much of the region is counterexamples; None if it is not known."""
    flip: str = ""


@dataclass(frozen=True)
class ProfileCell:
    """A value, or an interval, of an attribute; the share of its inputs that are counterexamples, and their mass."""

    label: str
    share: float
    mass: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Profile:
    """The counterexamples by the values of one attribute."""

    attribute: str
    cells: tuple[ProfileCell, ...]

    @property
    def numeric(self) -> bool:
        return all(cell.low is not None for cell in self.cells)


@dataclass(frozen=True)
class FlipMatrix:
    """Counterexample mass by the sensitive values of x (rows) and of x' (columns)."""

    title: str
    labels: tuple[str, ...]
    masses: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Difference:
    """One attribute of a pair."""

    attribute: str
    first: str
    second: str

    @property
    def changed(self) -> bool:
        return self.first != self.second


@dataclass(frozen=True)
class Pair:
    """Two inputs that are alike but for what changed, and get different classes."""

    attributes: tuple[Difference, ...]
    first_class: str
    second_class: str


@dataclass(frozen=True)
class Findings:
    """All of it for one result; a part that could not be made is empty, and `notes` says why."""

    rules: tuple[Rule, ...] = ()
    profiles: tuple[Profile, ...] = ()
    matrices: tuple[FlipMatrix, ...] = ()
    pairs: tuple[Pair, ...] = ()
    notes: tuple[str, ...] = ()

    def trimmed(self, extent: Extent) -> Findings:
        """At most as much of everything as the extent says."""
        n = extent.labels
        matrices = tuple(
            FlipMatrix(m.title, m.labels[:n], tuple(row[:n] for row in m.masses[:n])) for m in self.matrices
        )
        pairs = tuple(Pair(p.attributes[: extent.attributes], p.first_class, p.second_class) for p in self.pairs)
        return Findings(
            self.rules[: extent.rules], self.profiles[: extent.profiles], matrices, pairs[: extent.pairs], self.notes
        )


@dataclass(frozen=True)
class Extent:
    """How much of everything a page shows, so that it stays small whatever the model looks like."""

    rules: int = 20
    profiles: int = 16
    cells: int = 60
    labels: int = 12
    pairs: int = 10
    attributes: int = 40
    space: int = 60

    def halved(self) -> Extent:
        return Extent(*(max(n // 2, 2) for n in vars(self).values()))


NOTHING = Findings()
