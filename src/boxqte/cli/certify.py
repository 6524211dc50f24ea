"""`boxqte certify`: check a certificate without the engine that wrote it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

PROVED, REJECTED = 0, 1


def add_parser(commands: Any, add_model: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "certify",
        help="check a certificate",
        description="Check a certificate of boxqte quantify --certificate against the model. Exit code 0: it proves what is "
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
    from boxqte.answers.result import of_trees
    from boxqte.certify import Rejected, certify
    from boxqte.cli.arguments import read_model
    from boxqte.exact import down, up
    from boxqte.space.space import Space

    model = read_model(arguments)
    space = None if arguments.space is None else Space.load(arguments.space)
    try:
        verdict = certify(arguments.certificate, model.ensemble, space=space, workers=arguments.workers)
    except Rejected as error:
        print(json.dumps({"proved": False, "why": str(error)}) if arguments.json else f"rejected: {error}")
        return REJECTED
    ends = verdict.measure
    bounds = None if ends is None else [down(ends[0]), min(up(ends[1]), 1.0)]
    if arguments.json:
        masses = {kind: getattr(verdict, kind) for kind in ("fair", "unfair", "low")}
        counts = {"boxes": verdict.boxes, "open_boxes": verdict.open_boxes}
        rule = model.ensemble.decision
        about = {"property": verdict.asked, "decision": None if rule is None else rule.to_json()}
        print(json.dumps({"proved": True, "measure": bounds, **masses, **counts, **about}))
        return PROVED
    asked = {name: value for name, value in verdict.asked.items() if name != "kind"}
    shown = "undefined, nothing is confident" if bounds is None else f"between {bounds[0]!r} and {bounds[1]!r}"
    print(f"proved      {verdict.asked['kind']} {json.dumps(asked)}")
    used = of_trees(model.ensemble.n_trees, model.trees_in_file, model.trees_because)
    print(f"model       {model.source or 'as given'}, trees {used}, fingerprint {model.ensemble.fingerprint():.16}")
    if model.ensemble.decision is not None:
        print(f"decision    {model.ensemble.decision.text()}")
    print(f"space       {'as given with --space' if space else 'as written in the certificate'}")
    print(f"measure     {shown}")
    print(f"masses      fair >= {verdict.fair!r}, unfair >= {verdict.unfair!r}, not confident >= {verdict.low!r}")
    print(f"boxes       {verdict.boxes:,} closed and checked, {verdict.open_boxes:,} left open")
    return PROVED
