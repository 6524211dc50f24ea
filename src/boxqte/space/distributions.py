"""Masses by a formula: a gaussian or a lognormal, truncated to the domain of a numeric attribute.

Masses are exact rationals here as everywhere, and those of all cells sum to exactly 1; so they are not the formula's own,
which are irrational, but lie within a proven distance of them (`Distribution.error`), which enters the bounds of results.

How. With z = (x - location) / scale (lognormal: (ln x - location) / scale), Phi the distribution function of the standard
normal and N whole bits, A(x) is a whole number within 2 of 2^N Phi(z):
1. z is rounded down to a multiple of 2^-(N + 2): exactly for rationals, and for logarithms with as many digits as it takes
   (`floor_of_log`). Phi' < 0.4, so Phi falls by less than 0.1 * 2^-N.
2. At z^2 >= 2 N, A is 0 or 2^N: the tail beyond is at most e^(-z^2 / 2) / 2 < 2^-N.
3. Elsewhere Phi(z) = 1/2 + phi(z) (z + z^3 / 3 + z^5 / (3 * 5) + ...) for z > 0: all terms are positive, so that every
   rounding is a relative error of 10^-digits, and fewer than 10^5 of them happen. A is 2^N times that, rounded down.
The digits are so many that the error is below a quarter of what Phi grows by from one z to the next (at least
phi(z) 2^-(N + 2), where z^2 < 2 N): so A never falls, and no cell has a negative mass.

With the domain cut to k spans (one, unless a condition has restricted it), D the sum of A's growth over them: the mass of a
cell is (A's growth over the cell) / D. Both are off by less than 4 k, and the true share is at most 1, so the mass is off by
less than 8 k / D. D is at least 2^128, N being doubled until it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

from boxqte.errors import SpaceError
from boxqte.exact import Number, floor_of_log, fraction, plain, shown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Family = Literal["gaussian", "lognormal"]
FAMILIES: tuple[Family, ...] = get_args(Family)
PARAMETERS = {"gaussian": ("mean", "sd"), "lognormal": ("mu", "sigma")}
Span = tuple[Fraction, Fraction]

BITS = 160
MOST_BITS = 1280  # a domain some 40 standard deviations away
LEAST_TOTAL = 2**128
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Distribution:
    """The mass of a numeric attribute by a formula, truncated to its domain; an integer has that of [v - 1/2, v + 1/2].

    Make one with `Distribution.gaussian` or `Distribution.lognormal`. An integer domain is truncated to
    [low - 1/2, high + 1/2].

    Examples
    --------
    >>> from boxqte import Attribute, Space
    >>> space = Space([Attribute.integer("age", 18, 90)]).with_mass({"age": Distribution.gaussian(40, 12)})
    >>> round(float(space["age"].mass_below(Fraction(40))), 4)  # ages 18 to 39
    0.4672
    """

    family: Family
    location: Fraction
    scale: Fraction
    spans: tuple[Span, ...] = ()
    """Where the mass lies; the attribute fills in its domain. For integers from a value up to a value that is not in it."""
    integral: bool = False

    @classmethod
    def gaussian(cls, mean: Number, sd: Number) -> Distribution:
        """The normal distribution."""
        return cls._of("gaussian", mean, sd)

    @classmethod
    def lognormal(cls, mu: Number, sigma: Number) -> Distribution:
        """The distribution of exp(z) where z is normal with mean mu and standard deviation sigma."""
        return cls._of("lognormal", mu, sigma)

    @classmethod
    def _of(cls, family: Family, location: object, scale: object, where: str = "mass") -> Distribution:
        names = PARAMETERS[family]
        given = [fraction(v, SpaceError, f"{where}, {n} of the {family}") for v, n in zip((location, scale), names)]
        if given[1] <= 0:
            raise SpaceError(f"{where}, {names[1]} of the {family}: must be above 0, found {plain(given[1])}")
        return cls(family, given[0], given[1])

    def on(self, low: Fraction, end: Fraction, integral: bool, where: str) -> Distribution:
        """The distribution on a domain from low to end, or on what it was restricted to before."""
        if self.family == "lognormal" and low < 0:
            raise SpaceError(f"{where}, mass: a lognormal has no mass below 0, but the domain begins at {plain(low)}")
        spans = self.spans or ((low, end),)
        if any(not low <= start < stop <= end for start, stop in spans):
            raise SpaceError(f"{where}, mass: 'within' must lie in the domain, {plain(low)} to {plain(end)}")
        placed = replace(self, spans=spans, integral=integral)
        if placed.bits > MOST_BITS:
            raise SpaceError(
                f"{where}, mass: the domain has next to no mass under a {self.words()}; check both, or widen the domain"
            )
        return placed

    def below(self, point: Fraction) -> Fraction:
        """The share of the mass that lies below the point."""
        return Fraction(sum(self._at(min(max(point, a), b)) - self._at(a) for a, b in self.spans), self._total)

    @property
    def error(self) -> Fraction:
        """More than the mass of any one cell is off."""
        return Fraction(8 * len(self.spans), self._total)

    @cached_property
    def bits(self) -> int:
        """N: with fewer, what rounding loses would not be small against the mass of the domain."""
        bits = BITS
        while bits <= MOST_BITS and self._growth(bits) < LEAST_TOTAL:
            bits *= 2
        return bits

    @cached_property
    def _total(self) -> int:
        return self._growth(self.bits)

    def _growth(self, bits: int) -> int:
        return sum(self._at(b, bits) - self._at(a, bits) for a, b in self.spans)

    def _at(self, x: Fraction, bits: int = 0) -> int:
        """A(x)."""
        bits = bits or self.bits
        x -= HALF * self.integral
        unit = Fraction(1 << (bits + 2))
        if self.family == "gaussian":
            z = math.floor((x - self.location) / self.scale * unit)
        elif x <= 0:
            return 0
        else:
            z = floor_of_log(x, unit / self.scale, -self.location / self.scale * unit)
        return _normal(z, bits)

    # --- drawing ---

    @cached_property
    def knots(self) -> tuple[Fraction, ...]:
        """Where to divide the domain: at the ends of the spans, and so that `draw` keeps half of what it tries."""
        places = [self.location + i * self.scale for i in (-1, 0, 1)]
        if self.family == "lognormal":
            places = [Fraction(math.exp(min(float(place), 700.0))) for place in places]
        whole = {Fraction(math.ceil(place)) if self.integral else place for place in places}
        return tuple(sorted(whole | {end for span in self.spans for end in span}))

    def draw(
        self, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """One value between each pair of ends (integers: below `high`), as the density has it; in floats.

        By rejection: the normal density lies below its tangent's exponential at the end that is nearer to the mode, and a
        step of t away from there is kept with probability exp(-t^2 / 2).
        """
        import numpy as np

        out = np.empty(len(low))
        todo = np.arange(len(low))
        first, last = (self._z(ends - self.integral / 2) for ends in (low, high))
        while len(todo):
            a, b = first[todo], last[todo]
            start = np.clip(0.0, a, b)  # the densest place
            rate, width = np.abs(start), b - a
            u = rng.random(len(todo))
            with np.errstate(divide="ignore", invalid="ignore"):
                step = np.where(rate * width > 1e-9, -np.log1p(u * np.expm1(-rate * width)) / rate, u * width)
            z = np.where(rate > 0, start + np.where(a >= 0, step, -step), a + u * width)
            kept = rng.random(len(todo)) < np.exp(-((z - start) ** 2) / 2)
            out[todo[kept]] = z[kept]
            todo = todo[~kept]
        x = float(self.location) + float(self.scale) * out
        if self.family == "lognormal":
            x = np.exp(np.minimum(x, 709.0))
        if self.integral:
            return np.clip(np.floor(x + 0.5), low, high - 1)
        return np.clip(x, low, high)

    def _z(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        import numpy as np

        if self.family == "lognormal":
            x = np.log(np.maximum(x, 5e-324))
        z: npt.NDArray[np.float64] = np.clip((x - float(self.location)) / float(self.scale), -1e6, 1e6)
        return z

    # --- text ---

    def words(self) -> str:
        """Such as 'gaussian, mean 40, sd 12'."""
        numbers = zip(PARAMETERS[self.family], (self.location, self.scale))
        return ", ".join([self.family, *(f"{name} {plain(value)}" for name, value in numbers)])

    def to_json(self, low: Fraction, end: Fraction) -> dict[str, Any]:
        """A JSON object that `read_distribution` reads back, on a domain from low to end."""
        out: dict[str, Any] = {self.family: [plain(self.location), plain(self.scale)]}
        if self.spans not in ((), ((low, end),)):
            out["within"] = [[plain(v) for v in span] for span in self.spans]
        return out


def read_distribution(node: Any, where: str) -> Distribution | None:
    """The distribution that {"gaussian": [mean, sd]} means, with "within" the spans that it is restricted to; None if the
    object names none."""
    family = next((f for f in FAMILIES if f in node), None)
    if family is None:
        return None
    unknown = [key for key in node if key not in (family, "within")]
    given, spans = node[family], node.get("within", ())
    wanted = f"{{'{family}': [{', '.join(PARAMETERS[family])}]}}"
    if unknown or not isinstance(given, (list, tuple)) or len(given) != 2:
        raise SpaceError(f"{where}: expected {wanted}, found {shown(node)}")
    if not isinstance(spans, (list, tuple)) or any(not isinstance(s, (list, tuple)) or len(s) != 2 for s in spans):
        raise SpaceError(f"{where}.within: expected [[from, to], ...], found {shown(spans)}")
    read = [[fraction(v, SpaceError, f"{where}.within") for v in span] for span in spans]
    if sorted(read) != read or any(one[1] > two[0] for one, two in pairwise(read)):
        raise SpaceError(f"{where}.within: the spans must be in order and apart, found {shown(spans)}")
    found = Distribution._of(family, given[0], given[1], where)
    return replace(found, spans=tuple((low, high) for low, high in read))


@lru_cache(maxsize=100_000)
def _normal(z: int, bits: int) -> int:
    """2^bits Phi(z / 2^(bits + 2)), rounded to a whole number less than 1.1 away; it never falls as z grows."""
    if z < 0:
        return (1 << bits) - _normal(-z, bits)
    if z * z >= (2 * bits) << (2 * bits + 4):
        return 1 << bits
    # phi(z) 2^-(bits + 2) / 4 > 10^-(0.44 bits + 1) 2^-(bits + 4) > 10^-(0.75 bits + 3)
    digits = math.ceil(0.75 * bits) + 10
    with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        x = Decimal(z) / Decimal(1 << (bits + 2))
        square = x * x
        term = total = x
        n = 1
        while term > total * Decimal(10) ** -digits or 2 * square > n:  # from there on terms fall by half
            n += 2
            term = term * square / n
            total += term
        density = (-square / 2).exp() / (2 * _pi(digits)).sqrt()
        value = (HALF_DECIMAL + density * total) * Decimal(1 << bits)
        return math.floor(value)


HALF_DECIMAL = Decimal("0.5")


@lru_cache(maxsize=16)
def _pi(digits: int) -> Decimal:
    """Machin: pi = 16 arctan(1/5) - 4 arctan(1/239); ten digits more than asked for are computed."""
    unit = 10 ** (digits + 10)

    def arctan(inverse: int) -> int:
        power, total, n, sign = unit // inverse, 0, 1, 1
        while power:
            total += sign * (power // n)
            power //= inverse * inverse
            n, sign = n + 2, -sign
        return total

    with localcontext(Context(prec=digits + 10, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        pi: Decimal = Decimal(16 * arctan(5) - 4 * arctan(239)) / unit
        return pi
