"""Fairness testers: find inputs that a model treats unfairly by asking it, and nothing else.

They need a predict function, no model file and no training data, so they work on any classifier. They prove nothing: an
input that they find is unfair, one that they do not find may be as well. `boxqte.quantify` proves.

A new tester is one file with a class (see `tester.Tester`) and one line in TESTERS.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxqte.basics import checks
from boxqte.errors import EngineError

if TYPE_CHECKING:
    import pandas as pd

    from boxqte.models.decision import Threshold
    from boxqte.space.space import Space
    from boxqte.testers.blackbox import Input
    from boxqte.testers.findings import Findings
    from boxqte.testers.session import Progress
    from boxqte.testers.tester import Tester, Variant

# name -> module:class
TESTERS: dict[str, str] = {
    "themis": "boxqte.testers.themis:Themis",
    "sg": "boxqte.testers.sg:SymbolicGeneration",
    "expga": "boxqte.testers.expga:ExpGA",
    "aft": "boxqte.testers.aft:AFT",
    "vbt": "boxqte.testers.vbt:VBT",
    "surrogate": "boxqte.testers.surrogate:Surrogate",
}
DEFAULT_TESTER = "surrogate"

__all__ = ["DEFAULT_TESTER", "TESTERS", "find_idis", "make_tester", "named_tester"]


def find_idis(
    model: Any,
    space: Space | Mapping[str, Any] | str | Path,
    sensitive: str,
    *,
    method: str = DEFAULT_TESTER,
    seconds: float | None = None,
    tests: int | None = None,
    random_state: int | None = None,
    batch: bool = True,
    variant: Variant = "fixed",
    options: Mapping[str, Any] | None = None,
    input: Input = "matrix",
    data: pd.DataFrame | None = None,
    progress: Callable[[Progress], None] | None = None,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
) -> Findings:
    """Search for individual discriminatory inputs of any model: inputs that another sensitive value flips.

    Parameters
    ----------
    model
        A function from a table of inputs to one label a row, an object with such a `predict`, or a tree ensemble that
        boxqte reads (live or a file).
    space
        The input space: a Space, the path of its JSON file, or the JSON object.
    sensitive
        The name of the sensitive attribute.
    method
        Which tester: "surrogate", "aft", "expga", "sg", "themis" or "vbt".
    seconds, tests
        The budget: at least one of them. A run with a budget of tests alone repeats exactly for the same seed.
    random_state
        The seed; None is a new one every time.
    batch
        Ask about many inputs at once; False asks like the published tools, one or two at a time.
    variant
        "fixed", or "faithful" with the errors of the published code that change its counts.
    options
        Options of the tester, by name.
    input
        What the function is called with: "matrix", model columns as float64, or "frame", the user's own values.
    data
        Rows like those that the model was trained on, where a tester (SG, ExpGA) looks at data; without it inputs drawn
        from the space stand in.
    progress
        Called with a Progress now and then.
    allow_pickle
        Unpickle a scikit-learn file; only for files you trust.
    threshold
        The decision rule, in place of the model's own (`boxqte.load_model`); for a model that boxqte reads.

    Returns
    -------
    Findings
        The IDIs and their partners, each checked once more, and what the search took.

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> from boxqte.testers import find_idis
    >>> found = find_idis(loan_ensemble(), loan_space(), "race", method="themis", tests=500, random_state=1)
    >>> len(found) > 0, found.tests, found.rejected
    (True, 500, 0)
    """
    import pandas as pd

    from boxqte.space.space import read_space
    from boxqte.space.tables import table_of
    from boxqte.testers.blackbox import BlackBox
    from boxqte.testers.coordinates import Coordinates
    from boxqte.testers.session import Session, Spent

    if seconds is None and tests is None:
        raise EngineError("a tester needs a budget: seconds, tests, or both")
    seconds = checks.seconds(seconds, "seconds")
    tests = None if tests is None else checks.whole(tests, "tests")
    random_state = None if random_state is None else checks.whole(random_state, "random_state", 0)
    checks.function(progress, "progress")
    bound = read_space(space).marked([sensitive])
    at = Coordinates(bound, sensitive)
    tester = make_tester(method, options, batch=batch, variant=variant)
    box = BlackBox(model, bound, input=input, allow_pickle=allow_pickle, threshold=threshold)
    rows = (
        None if data is None else at.read(data if isinstance(data, pd.DataFrame) else table_of(data).frame.to_pandas())
    )
    tester.prepare()
    session = Session(box, at, batch=batch, seconds=seconds, tests=tests, random_state=random_state, data=rows,
                      progress=progress)  # fmt: skip
    status = "exhausted"
    try:
        tester.search(session)
    except Spent as spent:
        status = str(spent)
    except KeyboardInterrupt:
        status = "interrupted"
    return _findings(session, box, at, tester, variant, status, random_state)


def _findings(session: Any, box: Any, at: Any, tester: Tester, variant: str, status: str, seed: int | None) -> Findings:
    import pandas as pd

    from boxqte.testers.findings import Findings
    from boxqte.testers.verification import verify

    took = session.seconds
    sensitive = at.space.names[at.sensitive]
    x, partner = session.pairs()
    inside = at.inside(x) & at.inside(partner)
    idis, partners = at.frame(x[inside]), at.frame(partner[inside])
    good = verify(box, at.space, sensitive, idis, partners)
    curve = pd.DataFrame([*session.curve, (took, session.tests, session.idis)], columns=["seconds", "tests", "idis"])
    return Findings(
        method=tester.name,
        variant=variant,
        batch=tester.batch,
        sensitive=sensitive,
        random_state=seed,
        model=box.name,
        status=status,
        seconds=took,
        check_seconds=session.seconds - took,
        tests=session.tests,
        raw=session.raw,
        rejected=len(x) - int(good.sum()),
        calls=box.calls,
        rows=box.rows,
        idis=idis[good].reset_index(drop=True),
        partners=partners[good].reset_index(drop=True),
        curve=curve,
        details=session.details,
    )


def named_tester(name: str) -> Any:
    """The class of the tester of that name."""
    if not isinstance(name, str) or name not in TESTERS:
        meant = checks.did_you_mean(name, TESTERS)
        raise EngineError(f"method: '{name}' is unknown{meant}; testers are {', '.join(TESTERS)}")
    module, _, cls = TESTERS[name].partition(":")
    return getattr(importlib.import_module(module), cls)


def make_tester(
    name: str, options: Mapping[str, Any] | None = None, *, batch: bool = True, variant: Variant = "fixed"
) -> Tester:
    """The tester of that name with the given options; errors name what would be accepted."""
    from boxqte.engines.options import check_types

    cls = named_tester(name)
    check_types(f"tester '{name}'", cls.Options, options)
    known = [f.name for f in fields(cls.Options)]
    for key in options or {}:
        if key not in known:
            raise EngineError(f"tester '{name}': option '{key}' is unknown; options are {', '.join(known)}")
    made: Tester = cls(cls.Options(**(options or {})), batch=batch, variant=variant)
    return made
