"""Populations as plain text: how the masses were taken, and what a fitted mixture captures."""

from __future__ import annotations

from boxqte.space.dependence import Dependence
from boxqte.space.populations import Captured, Population


def population_text(found: Population) -> str:
    """What a population is, what it captures of its rows, and how large its products are.

    Dependence is the total variation between joint shares of two attributes: in the rows, and in the product of their own
    shares, or (`missed`) in the population.

    Examples
    --------
    >>> from boxqte import Attribute, Population, Space
    >>> space = Space([Attribute.categorical("sex", ["f", "m"]), Attribute.categorical("job", ["nurse", "smith"])])
    >>> people = {"sex": ["f", "m"] * 300, "job": ["nurse", "smith"] * 290 + ["smith", "nurse"] * 10}
    >>> print(population_text(Population.fit(people, space, 2)))  # doctest: +ELLIPSIS
    population           a mixture of 2 products, from 600 rows
    seed                 0
    held-out likelihood  -0.8... nats a row, the product's is -1.38...: +0.5...
    dependence           sex and job: the product misses 0.46...
    ...
    """
    lines = [("population", f"{_kind(found)}, from {found.rows:,} rows")]
    if found.captured is not None:
        lines += [("seed", str(found.captured.seed)), *_captured(found.captured)]
    if found.components > 1:
        shares = sorted(map(float, found.weights), reverse=True)
        lines.append(("weights", ", ".join(f"{share:.4f}" for share in shares)))
    lines += [("note", note) for note in found.notes]
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {words}" for label, words in lines)


def masses_text(found: Population, source: str) -> str:
    """For standard error beside an answer: where its masses are from, and what they miss."""
    lines = [f"masses from {found.rows:,} rows of {source}"]
    if found.captured is not None:
        lines[0] += f": {_kind(found)}"
        lines += [f"  {label}: {words}" for label, words in _captured(found.captured)]
    return "\n".join([*lines, *(f"  {note}" for note in found.notes)])


def _kind(found: Population) -> str:
    return "a product" if found.components == 1 else f"a mixture of {found.components} products"


def _captured(captured: Captured) -> list[tuple[str, str]]:
    lines = []
    if captured.gain is not None:
        own, product = captured.held_out[captured.components], captured.held_out[1]
        words = f"{own:.4f} nats a row"
        if captured.components > 1:
            words += f", the product's is {product:.4f}: {captured.gain:+.4f} on {captured.held_out_rows:,} rows"
        lines.append(("held-out likelihood", words))
    if captured.before is not None and captured.after is not None:
        lines.append(("dependence", f"{_pair(captured.before)}: the product misses {_distance(captured.before)}"))
        lines.append(("missed", f"{_pair(captured.after)}: {_distance(captured.after)}, the most of any pair"))
    return lines


def _pair(found: Dependence) -> str:
    return " and ".join(found.between)


def _distance(found: Dependence) -> str:
    return f"{found.distance:.4f} (chance alone: about {found.chance:.4f})"
