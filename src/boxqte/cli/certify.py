"""`boxqte certify`: check a certificate without the engine that wrote it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

    from boxqte.certify import Verdict
    from boxqte.models.importers import ImportedModel

PROVED, REJECTED = 0, 1


def add_parser(commands: Any, add_model: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "certify",
        help="check a certificate",
        description="Check a certificate of boxqte quantify or boxqte rates against the model. Exit code 0: it proves what is "
        "printed; 1: it is rejected; 2: it cannot be read.",
    )
    parser.add_argument("certificate", metavar="CERTIFICATE")
    add_model(parser)
    parser.add_argument("--space", metavar="SPACE.json", help="also check that it is about this space")
    parser.add_argument("--workers", metavar="N", type=int, help="processes (default: one per core)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check, and print what is proved; the exit code."""
    from boxqte.certify import Rejected, certify_parts
    from boxqte.cli.arguments import read_model
    from boxqte.space.space import Space

    model = read_model(arguments)
    space = None if arguments.space is None else Space.load(arguments.space)
    try:
        parts = certify_parts(arguments.certificate, model.ensemble, space, arguments.workers)
    except Rejected as error:
        print(json.dumps({"proved": False, "why": str(error)}) if arguments.json else f"rejected: {error}")
        return REJECTED
    counts = {"boxes": sum(part.boxes for part in parts), "open_boxes": sum(part.open_boxes for part in parts)}
    if arguments.json:
        rule = model.ensemble.decision
        about = {"property": _asked(parts[0]), "decision": None if rule is None else rule.to_json()}
        proved = _rates_json(parts) if parts[0].group else _measure_json(parts[0])
        print(json.dumps({"proved": True, **proved, **counts, **about}))
        return PROVED
    for label, text in [*_about(parts[0], model, given=space is not None), *_proved(parts)]:
        print(f"{label:<11} {text}")
    print(f"boxes       {counts['boxes']:,} closed and checked, {counts['open_boxes']:,} left open")
    return PROVED


def _asked(part: Verdict) -> dict[str, Any]:
    """The question; of rates, of all groups."""
    return {name: value for name, value in part.asked.items() if name != "group"}


def _about(part: Verdict, model: ImportedModel, *, given: bool) -> list[tuple[str, str]]:
    from boxqte.answers.result import of_trees

    asked = {name: value for name, value in _asked(part).items() if name != "kind"}
    what = f"by {', '.join(asked['sensitive'])}" if part.group else json.dumps(asked)
    used = of_trees(model.ensemble.n_trees, model.trees_in_file, model.trees_because)
    rule = model.ensemble.decision
    return [
        ("proved", f"{part.asked['kind']} {what}"),
        ("model", f"{model.source or 'as given'}, trees {used}, fingerprint {model.ensemble.fingerprint():.16}"),
        *([] if rule is None else [("decision", rule.text())]),
        ("space", "as given with --space" if given else "as written in the certificate"),
    ]


def _proved(parts: Sequence[Verdict]) -> list[tuple[str, str]]:
    if parts[0].group:
        shown = [_rounded(part.rate) for part in parts]
        return [
            ("rate", f"{group_text(p)}: between {ends[0]!r} and {ends[1]!r}") for p, ends in zip(parts, shown) if ends
        ]
    (part,) = parts
    ends = _rounded(part.measure)
    text = "undefined, nothing is confident" if ends is None else f"between {ends[0]!r} and {ends[1]!r}"
    masses = f"fair >= {part.fair!r}, unfair >= {part.unfair!r}, not confident >= {part.low!r}"
    return [("measure", text), ("masses", masses)]


def _measure_json(part: Verdict) -> dict[str, Any]:
    masses = {kind: getattr(part, kind) for kind in ("fair", "unfair", "low")}
    return {"measure": _rounded(part.measure), **masses}


def _rates_json(parts: Sequence[Verdict]) -> dict[str, Any]:
    groups = [{"values": group_values(p), "mass": float(p.mass), "rate": _rounded(p.rate)} for p in parts]
    return {"groups": groups}


def _rounded(ends: tuple[Fraction, Fraction] | None) -> list[float] | None:
    from boxqte.exact import down, up

    return None if ends is None else [down(ends[0]), min(up(ends[1]), 1.0)]


def group_values(part: Verdict) -> list[list[str]]:
    """On each sensitive attribute the values, or the intervals, that the group holds."""
    values = []
    for a, held, missing in part.asked["group"]:
        attribute = part.space[part.space.names[a]]
        if attribute.is_numeric:
            own = [f"{'[' if not side else '('}{low}, {high}{')' if not end else ']'}" for low, side, high, end in held]
        else:
            own = [attribute.label_of(value) for value in held]
        values.append([*own, *(["missing"] if missing else [])])
    return values


def group_text(part: Verdict) -> str:
    """The group in words."""
    own = zip(part.asked["sensitive"], group_values(part))
    return " and ".join(f"{name} {' or '.join(values)}" for name, values in own)
