"""A result read back from the JSON that it was saved as: the numbers and what they are about, not the model behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from boxqte.answers.result import ModelSummary, Result
from boxqte.engines.protocol import Decided, Statistical, Status
from boxqte.errors import BoxQTEError, ReportError
from boxqte.exact import fraction, shown
from boxqte.models.decision import DecisionRule
from boxqte.questions.reading import read_property

COUNTS = ("points", "fair", "unfair", "low", "unknown", "seed")


def read_result(path: Path) -> Result:
    """The result in a file of `Result.save` or `boxqte quantify --json`; one line says what is wrong with another file."""
    try:
        node = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not valid JSON: {str(error).splitlines()[0]}") from None
    try:
        return _Reader(str(path)).result(node)
    except ReportError:
        raise
    except BoxQTEError as error:
        raise ReportError(f"{path}: {error}") from None


class _Reader:
    """Takes the fields of a saved result one by one; what is missing or of another kind is an error with its place."""

    def __init__(self, path: str):
        self.path = path

    def result(self, node: Any) -> Result:
        if not isinstance(node, Mapping) or not {"measure", "property", "status"} <= {*node}:
            raise ReportError(f"{self.path}: this is no saved result; expected what `save` writes")
        mass, decided = self.take(node, "mass", Mapping), self.take(node, "decided", Mapping)
        cells = self.take(node, "cells", Mapping, None)
        ambiguous = self.take(mass, "rounding_ambiguous", (int, float), None)
        return Result(
            property=read_property(self.take(node, "property", Mapping)),
            model=self.model(self.take(node, "model", Mapping)),
            engine=self.take(node, "engine", str),
            status=self.status(self.take(node, "status", str)),
            decided=Decided(*(self.rational(decided, kind) for kind in ("fair", "unfair", "low"))),
            seconds=float(self.take(node, "seconds", (int, float))),
            trace=tuple(self.moment(moment) for moment in self.take(node, "trace", list)),
            space_fingerprint=self.take(self.take(node, "space", Mapping), "fingerprint", str),
            rounding_ambiguous=None if ambiguous is None else float(ambiguous),
            input_rounding=float(self.take(mass, "input_rounding", (int, float))),
            count=self.take(node, "count", int, None),
            cells=None if cells is None else self.take(cells, "all", int),
            details=dict(self.take(node, "details", Mapping)),
            statistical=self.statistical(self.take(node, "statistical", Mapping, None)),
            remarks=tuple(map(str, self.take(node, "remarks", list))),
            caveats=tuple(map(str, self.take(node, "caveats", list))),
            world=self.take(node, "world", str),
            all_confident=self.take(decided, "all_confident", bool),
        )

    def take(self, node: Mapping[str, Any], name: str, kind: Any, *default: Any) -> Any:
        """The field of that name; with a default it may be null or missing."""
        value = node.get(name)
        if value is None and default:
            return default[0]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            found = shown(value) if name in node else "nothing: was it written by an older boxqte?"
            raise ReportError(f"{self.path}: {name}: expected what `save` writes there, found {found}")
        return value

    def rational(self, node: Mapping[str, Any], name: str) -> Fraction:
        text = self.take(node, name, str)
        try:
            value = Fraction(text)
        except (ValueError, ZeroDivisionError):
            value = Fraction(-1)
        if not 0 <= value <= 1:
            raise ReportError(f"{self.path}: decided.{name}: expected a share such as '3/4', found {shown(text)}")
        return value

    def status(self, text: str) -> Status:
        known = [str(status) for status in Status]
        if text not in known:
            raise ReportError(f"{self.path}: status: expected one of {', '.join(known)}, found {shown(text)}")
        return Status(text)

    def moment(self, node: Any) -> tuple[float, float, float]:
        numbers = isinstance(node, list) and len(node) == 3 and all(isinstance(end, (int, float)) for end in node)
        if not numbers:
            raise ReportError(f"{self.path}: trace: expected [seconds, lower, upper], found {shown(node)}")
        return float(node[0]), float(node[1]), float(node[2])

    def statistical(self, node: Mapping[str, Any] | None) -> Statistical | None:
        if node is None:
            return None
        lower, upper, sure = (float(self.take(node, name, (int, float))) for name in ("lower", "upper", "confidence"))
        return Statistical(lower, upper, sure, *(self.take(node, name, int) for name in COUNTS))

    def model(self, node: Mapping[str, Any]) -> ModelSummary:
        trees, held = self.take(node, "trees", int), self.take(node, "trees_in_file", int)
        rule = self.take(node, "decision", Mapping, None)
        return ModelSummary(
            self.take(node, "library", str),
            trees,
            self.take(node, "leaves", int),
            self.take(node, "features", int),
            self.take(node, "fingerprint", str),
            self.take(node, "source", str),
            None if held == trees else held,
            self.take(node, "trees_because", str),
            None if rule is None else self.decision(rule),
        )

    def decision(self, node: Mapping[str, Any]) -> DecisionRule:
        given, attribute = node.get("threshold"), self.take(node, "attribute", str, None)
        levels: Mapping[Any, Any] = given if isinstance(given, Mapping) else {None: given}
        where = f"{self.path}: model.decision.threshold"
        thresholds = tuple((value, fraction(tau, ReportError, where)) for value, tau in levels.items())
        return DecisionRule(
            thresholds=thresholds,
            attribute=attribute,
            exclusive=self.take(node, "exclusive", bool),
            on=self.take(node, "on", str),
        )
