"""What a report shows of a result beyond its bounds: regions as rules, profiles, the flip matrix and example pairs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

WIDEST = 0.25  # certain bounds on a share that are further apart say too little to be shown
NARROW = 0.001  # and where they are so close, random draws have nothing to add


@dataclass(frozen=True)
class Rule:
    """A region: conditions that hold together, and the share that it has of all counterexamples (at least)."""

    conditions: tuple[str, ...]
    mass: float
    share: float
    density: float | None = None
    """How much of the region is counterexamples; None if it is not known."""
    flip: str = ""


@dataclass(frozen=True)
class HotNode:
    """A condition in the tree of hot spots: with those above it, it is a rule, and maybe one of the hot spots."""

    level: int
    condition: str
    number: int | None
    """Which hot spot the rule is; None: it only leads to some."""
    mass: float | None = None
    """Of all inputs; None where the rule was not counted."""
    density: tuple[float, float] | None = None
    """The unfair share inside, as bounds (certain, unless it is `drawn`); so are all that follow."""
    lift: tuple[float, float | None] | None = None
    """How many times as frequent as in the whole; nothing is known above where the upper end is None."""
    share: tuple[float, float] | None = None
    """Of all unfair inputs."""
    drawn: bool = False
    """Whether the bounds are statistical: certain ones are far apart."""


@dataclass(frozen=True)
class HotSpots:
    """Short rules that hold many of the counterexamples, as a tree with one condition a level."""

    nodes: tuple[HotNode, ...]
    covered: tuple[float, float]
    """The share of all unfair inputs that the hot spots hold together."""
    lift: float
    """What every hot spot is meant to have at least."""
    confidence: float | None = None
    """Of all statistical bounds together; None: all are certain."""

    @property
    def proved(self) -> bool:
        """Whether the bounds say that every hot spot has the lift."""
        return all(
            node.lift is not None and node.lift[0] >= self.lift for node in self.nodes if node.number is not None
        )

    @property
    def count(self) -> int:
        """How many hot spots there are."""
        return sum(node.number is not None for node in self.nodes)


@dataclass(frozen=True)
class ProfileCell:
    """A value, or an interval, of an attribute; certain bounds on the share of its inputs that are counterexamples."""

    label: str
    lower: float
    upper: float
    mass: float
    """Of all inputs with that value."""
    low: float | None = None
    high: float | None = None
    statistical: tuple[float, float] | None = None
    """An interval from random draws, where certain bounds are far apart."""

    @property
    def useful(self) -> bool:
        """Whether the certain bounds say enough to be shown."""
        return self.upper - self.lower <= WIDEST

    @property
    def settled(self) -> bool:
        """Whether nothing is gained by random draws."""
        return self.upper - self.lower <= NARROW

    @property
    def best(self) -> tuple[float, float] | None:
        """The ends that say the most: certain, statistical, or None."""
        if not self.settled and self.statistical is not None:
            return self.statistical
        return (self.lower, self.upper) if self.useful else None


@dataclass(frozen=True)
class Profile:
    """The counterexamples by the values of one attribute."""

    attribute: str
    cells: tuple[ProfileCell, ...]
    confidence: float | None = None
    """Of all statistical intervals of the question's profiles together."""

    @property
    def numeric(self) -> bool:
        return all(cell.low is not None for cell in self.cells)

    @property
    def has_draws(self) -> bool:
        """Whether some cell shows a statistical interval."""
        return any(cell.statistical is not None and not cell.settled for cell in self.cells)


@dataclass(frozen=True)
class FlipMatrix:
    """Counterexample mass by the sensitive values of x (rows) and of x' (columns)."""

    title: str
    labels: tuple[str, ...]
    masses: tuple[tuple[tuple[float, float | None] | None, ...], ...]
    """Certain bounds; the upper one is None where it is not known. None where x' cannot have the value of x."""


@dataclass(frozen=True)
class Flip:
    """A decision with one sensitive value and another decision with another, in words, and how many inputs it happens to."""

    text: str
    lower: float
    upper: float


@dataclass(frozen=True)
class Difference:
    """One attribute of a pair."""

    attribute: str
    first: str
    second: str
    row: str = ""
    """The value in the row of the data that the pair is most like."""

    @property
    def changed(self) -> bool:
        return self.first != self.second


@dataclass(frozen=True)
class Pair:
    """Two inputs that are alike but for what changed, and get different classes."""

    attributes: tuple[Difference, ...]
    first_class: str
    second_class: str
    row: int | None = None
    """The number of the row of the data, from 0, that the first input is or is most like."""

    @property
    def real(self) -> bool:
        """Whether the first input is that row."""
        return self.row is not None and all(d.first == d.row for d in self.attributes)


@dataclass(frozen=True)
class Blamed:
    """A tree, or a split, that tests a sensitive attribute, and what blinding it does: texts, as they are shown."""

    name: str
    removed: str
    share: str
    measure: str
    loss: str
    is_split: bool


@dataclass(frozen=True)
class Findings:
    """All of it for one result; a part that could not be made is empty, and `notes` says why."""

    hotspots: HotSpots | None = None
    rules: tuple[Rule, ...] = ()
    profiles: tuple[Profile, ...] = ()
    matrices: tuple[FlipMatrix, ...] = ()
    pairs: tuple[Pair, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True
    """Whether the regions hold all counterexamples."""
    flips: tuple[Flip, ...] = ()
    replayed: bool = False
    """Whether the model's own library was asked about the pairs."""
    blamed: tuple[Blamed, ...] = ()
    blame: tuple[str, ...] = ()
    """What the table of the trees says, in sentences."""

    def trimmed(self, extent: Extent) -> Findings:
        """At most as much of everything as the extent says."""
        return Findings(
            None if self.hotspots is None else _trimmed_spots(self.hotspots, extent),
            tuple(_trimmed_rule(rule, extent) for rule in self.rules[: extent.rules]),
            tuple(_trimmed_profile(profile, extent) for profile in self.profiles[: extent.profiles]),
            tuple(_trimmed_matrix(matrix, extent) for matrix in self.matrices),
            tuple(_trimmed_pair(pair, extent) for pair in self.pairs[: extent.pairs]),
            self.notes,
            self.complete,
            tuple(replace(flip, text=extent.text(flip.text)) for flip in self.flips),
            self.replayed,
            tuple(replace(line, name=extent.text(line.name)) for line in self.blamed[: 2 * extent.rules]),
            self.blame,
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object: what the report shows."""
        return asdict(self)


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
    letters: int = 200

    def halved(self) -> Extent:
        smaller = {name: max(n // 2, 2) for name, n in vars(self).items()}
        return Extent(**{**smaller, "letters": max(self.letters // 2, 24)})

    def text(self, text: str) -> str:
        """The text, shortened where it is too long."""
        return text if len(text) <= self.letters else text[: self.letters - 3] + "..."


NOTHING = Findings()


def _trimmed_spots(spots: HotSpots, extent: Extent) -> HotSpots:
    shown = tuple(replace(node, condition=extent.text(node.condition)) for node in spots.nodes)
    return replace(spots, nodes=shown)


def _trimmed_rule(rule: Rule, extent: Extent) -> Rule:
    shown = [extent.text(condition) for condition in rule.conditions[: extent.attributes]]
    left = len(rule.conditions) - len(shown)
    more = (f"{left} more conditions",) if left else ()
    return Rule((*shown, *more), rule.mass, rule.share, rule.density, extent.text(rule.flip))


def _trimmed_profile(profile: Profile, extent: Extent) -> Profile:
    """A numeric profile keeps all its cells: it is a chart, and a small one."""
    cells = profile.cells if profile.numeric else profile.cells[: extent.cells]
    shown = tuple(replace(cell, label=extent.text(cell.label)) for cell in cells)
    return Profile(extent.text(profile.attribute), shown, profile.confidence)


def _trimmed_matrix(matrix: FlipMatrix, extent: Extent) -> FlipMatrix:
    n = extent.labels
    labels = tuple(extent.text(label) for label in matrix.labels[:n])
    return FlipMatrix(extent.text(matrix.title), labels, tuple(row[:n] for row in matrix.masses[:n]))


def _trimmed_pair(pair: Pair, extent: Extent) -> Pair:
    shown = (
        Difference(*map(extent.text, (d.attribute, d.first, d.second, d.row)))
        for d in pair.attributes[: extent.attributes]
    )
    return Pair(tuple(shown), extent.text(pair.first_class), extent.text(pair.second_class), pair.row)
