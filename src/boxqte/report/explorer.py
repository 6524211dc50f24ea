"""The explorer: a part of the report in which a reader with scripts picks an input and sees what the model makes of it.

The trees are in the page as JSON, each node as its library means it (`TreeEnsemble.goes_left`); leaf values are whole numbers of
one unit, added without rounding, and compared with the first sum that is class 1. So the class is the library's own but for what
the library itself rounds. There is nothing to fetch: one script, named by its hash in the page's content security policy.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from boxqte.answers.result import Result, asked_of
from boxqte.answers.samples import drawn_pairs
from boxqte.answers.values import GridValues
from boxqte.errors import ReportError
from boxqte.exact import floor_of_log
from boxqte.models.ensemble import ZERO_BAND, Test, TreeEnsemble
from boxqte.questions.building import attribute_codes, feature_of, match_columns
from boxqte.questions.decisions import attribute_groups
from boxqte.space.attributes import Attribute
from boxqte.space.conditions import Part
from boxqte.space.space import Space

TEMPLATES = Path(__file__).parent / "templates"
PAIRS = 8  # counterexamples to start from
SEED = 0
POLICY = "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


@dataclass(frozen=True)
class Explorer:
    """The part of the page, its style, and the content security policy that allows its script and no other."""

    html: Markup
    style: Markup
    policy: str


def explorer_part(results: Sequence[Result]) -> Explorer:
    """The explorer of a model that these answers are about, starting from counterexamples to the first of them that has any.

    Examples
    --------
    >>> import boxqte
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
    >>> explorer_part([result]).html[:33]
    Markup('<section id=explorer class=explor')
    """
    first = asked_of(results[0])
    ensemble, space = first.grid.ensemble, first.grid.space
    if not ensemble.is_binary or not ensemble.predicts_classes:
        found = f"has {ensemble.n_outputs}" if ensemble.predicts_classes else "predicts a number"
        raise ReportError(f"explorer: for models with two classes, this one {found}; leave it out")
    sensitive = dict.fromkeys(name for result in results for name in result.property.sensitive)
    known = model_data(ensemble, space) | {
        "sensitive": [space.names.index(name) for name in sensitive],
        "starts": _starts(results),
    }
    script, style = ((TEMPLATES / f"explorer.{kind}").read_text(encoding="utf-8").strip() for kind in ("js", "css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = json.dumps(known, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    made = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    page = made.get_template("explorer.html").render(
        data=Markup(text), script=Markup(script), precision=ensemble.sum_dtype
    )
    return Explorer(Markup(page), Markup(style), POLICY.format(digest))


# --- the model --------------------------------------------------------------------------------------------------------


def model_data(ensemble: TreeEnsemble, space: Space) -> dict[str, Any]:
    """The trees, the decision and the attributes as JSON."""
    unit = math.lcm(*(Fraction(v).denominator for v in ensemble.value[:, 0].tolist()), ensemble.base[0].denominator)
    leaf = ensemble.test == Test.LEAF
    shift = Fraction(1, 2) if ensemble.link == "mean" else Fraction(0)
    owner = match_columns(ensemble, space, space.names)
    nodes = np.flatnonzero(ensemble.test == Test.IN_SET).tolist()
    return {
        "roots": ensemble.roots.tolist(),
        "feature": ensemble.feature.tolist(),
        "test": ensemble.test.tolist(),
        "threshold": [0 if is_leaf else t for t, is_leaf in zip(_plain(ensemble.threshold), leaf.tolist())],
        "left": ensemble.left.tolist(),
        "right": ensemble.right.tolist(),
        "default": ensemble.default_left.astype(int).tolist(),
        "missing": ensemble.missing.tolist(),
        "sets": {str(node): sorted(ensemble.set_of(node)) for node in nodes},
        "known": {str(f): sorted(codes) for f, codes in ensemble.known_codes.items()},
        "value": [str(int(Fraction(v) * unit)) if is_leaf else 0
                  for v, is_leaf in zip(ensemble.value[:, 0].tolist(), leaf.tolist())],
        "base": str(int(ensemble.base[0] * unit)),
        "first": [str(first) for first in _first_of_class_1(ensemble, unit)],
        "unit": float(ensemble.factor / unit),
        "shift": float(shift),
        "link": ensemble.link,
        "classes": [str(c) for c in ensemble.classes],
        "zero": ZERO_BAND,
        "columns": ensemble.n_features,
        "attributes": [_attribute(ensemble, a, i, owner) for i, a in enumerate(space)],
        "rules": [{"text": rule.text, "boxes": [[[space.names.index(name), _part(part)] for name, part in box]
                                                for box in rule.boxes]} for rule in space.rules],
    }  # fmt: skip


def _plain(values: Any) -> list[float | int]:
    """Numbers, whole ones without a point: they are read back as the same floats."""
    return [int(v) if v.is_integer() and abs(v) < 2**53 else v for v in values.tolist()]


def _first_of_class_1(ensemble: TreeEnsemble, unit: int) -> list[int]:
    """The least sum of leaf values, in units, that is class 1: one for each threshold of the decision."""
    rule, inclusive = ensemble.decision, ensemble.tie == "positive"
    levels = [(Fraction(1), Fraction(0))]
    if rule is not None:
        inclusive = not rule.exclusive
        levels = [rule.level(i, ensemble.link) for i in range(len(rule.thresholds))]
    shift = Fraction(1, 2) if ensemble.link == "mean" else Fraction(0)
    scale = Fraction(unit) / ensemble.factor
    first = []
    for odds, offset in levels:
        at = (offset + shift) * scale
        on_it = odds == 1 and inclusive and at.denominator == 1  # otherwise no sum lies on the level
        first.append(int(at) if on_it else floor_of_log(odds, scale, at) + 1)
    return first


def _attribute(
    ensemble: TreeEnsemble, attribute: Attribute, i: int, owner: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """An attribute: what it may be, and what each value writes into the model's columns."""
    columns = [f for f, (at, _) in enumerate(owner) if at == i]
    known: dict[str, Any] = {"name": attribute.name, "kind": attribute.kind, "columns": columns}
    if attribute.is_numeric:
        known |= {"low": float(attribute.low), "high": float(attribute.high)}
    else:
        codes = attribute_codes(attribute, ensemble, feature_of(owner, i))
        at = [owner[f][1] for f in columns]
        known |= {
            "labels": [attribute.label_of(v) for v in range(len(attribute.values))],
            "codes": [[None if math.isnan(c) else c for c in row[at].tolist()] for row in codes],
        }
    if attribute.missing is not None:
        known["missing"] = True
    groups = attribute_groups(ensemble.decision, attribute)
    return known | ({"groups": list(groups)} if groups else {})


def _part(part: Part) -> dict[str, Any]:
    """A part of an attribute's domain, as `holds_in` reads it."""
    lacks, points = (sorted(map(float, numbers)) for numbers in (part.lacks, part.points))
    spans = [[float(low), float(high)] for low, high in part.spans]
    return {"spans": spans, "values": sorted(part.values), "missing": part.missing, "lacks": lacks, "points": points}


# --- where it starts --------------------------------------------------------------------------------------------------


def _starts(results: Sequence[Result]) -> list[list[list[float | None]]]:
    """Pairs of inputs (x, x') in the attributes' own values, indices of finite ones; None is a missing value."""
    for result in results:
        asked = asked_of(result)
        pairs = drawn_pairs(asked, PAIRS, np.random.default_rng(SEED))
        if pairs is not None:
            axes = GridValues(asked.grid).axes
            both = [[_values(own.numeric, column) for own, column in zip(axes, columns)] for columns in pairs]
            return [[[column[k] for column in side] for side in both] for k in range(len(both[0][0]))]
    return []


def _values(numeric: bool, column: Any) -> list[float | None]:
    return [
        None if math.isnan(v) or (not numeric and v < 0) else int(v) if v.is_integer() else v for v in column.tolist()
    ]
