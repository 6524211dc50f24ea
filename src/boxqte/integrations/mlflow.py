"""An audit in an MLflow run: the numbers as metrics with their bounds, the rest as artifacts (`pip install boxqte[mlflow]`)."""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any

from boxqte._version import __version__
from boxqte.answers.result import Bounds
from boxqte.api.audit import Audit
from boxqte.basics.checks import text
from boxqte.errors import ReportError

NAMED = re.compile(r"[^\w./ -]")  # what MLflow takes in no name of a metric
NUMBERS = ("lower", "upper", "value", "statistical_lower", "statistical_upper", "confidence", "seconds")


def log_audit(
    audit: Audit,
    *,
    run_id: str | None = None,
    prefix: str = "boxqte",
    report: bool = True,
    time_limit: float | None = None,
) -> str:
    """Log an audit to an MLflow run: metrics with bounds, report, JSON, model card, space and verdicts as artifacts.

    Parameters
    ----------
    audit
        What `boxqte.audit` returns.
    run_id
        The run; None is the active one, or a new one that is ended again.
    prefix
        Of all metrics and tags, and the folder of the artifacts.
    report
        Whether to make the HTML report, which searches for regions and examples (`Audit.to_html`).
    time_limit
        Seconds for the report.

    Returns
    -------
    str
        The id of the run.

    Notes
    -----
    Metrics are `boxqte.QUESTION.lower` and `.upper` (certain bounds on the measure), `.value` once it is known,
    `.statistical_lower`, `.statistical_upper` and `.confidence` where points were drawn, `.seconds`;
    `boxqte.rates.ATTRIBUTE.ratio_lower`, `.ratio_upper`, `.difference_lower`, `.difference_upper`; and `boxqte.passed`, 1 or 0,
    where something is required. A measure that is undefined has none. Characters that MLflow has no place for become `_`.
    """
    try:
        import mlflow
    except ImportError:
        raise ReportError("log_audit needs MLflow: pip install boxqte[mlflow]") from None
    if not isinstance(audit, Audit):
        raise ReportError(f"audit: expected what boxqte.audit returns, found {type(audit).__name__}")
    text(prefix, "prefix", ReportError, "a name such as 'boxqte'")
    texts = artifacts(audit)
    if report:
        texts["report.html"] = audit.to_html(time_limit=time_limit)
    try:
        return _logged(mlflow, audit, texts, run_id, prefix)
    except mlflow.exceptions.MlflowException as error:
        raise ReportError(f"MLflow: {str(error).splitlines()[0]}") from None


def _logged(mlflow: Any, audit: Audit, texts: dict[str, str], run_id: str | None, prefix: str) -> str:
    active = mlflow.active_run()
    with contextlib.ExitStack() as stack:
        run = run_id or (None if active is None else active.info.run_id)
        if run is None:
            run = stack.enter_context(mlflow.start_run()).info.run_id
        mlflow.log_metrics({f"{prefix}.{name}": value for name, value in metrics(audit).items()}, run_id=run)
        client = mlflow.MlflowClient()
        for name, value in tags(audit).items():
            client.set_tag(run, f"{prefix}.{name}", value)
        for name, content in texts.items():
            client.log_text(run, content, f"{prefix}/{name}")
    return str(run)


def metrics(audit: Audit) -> dict[str, float]:
    """The numbers of an audit by the names that a tracker takes; what is not known is left out.

    Examples
    --------
    >>> from boxqte import audit
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> found = metrics(audit(loan_ensemble(), space=loan_space(), sensitive="race", engine="exhaustive", robustness=0))
    >>> round(found["race.lower"], 6), round(found["rates.race.ratio_upper"], 6)
    (0.69703, 0.69703)
    """
    found: dict[str, float] = {}

    def add(name: str, value: float | None) -> None:
        if value is not None and math.isfinite(value):
            own = NAMED.sub("_", name)
            while own in found:
                own += "_"
            found[own] = float(value)

    def ends(name: str, bounds: Bounds | None) -> None:
        if bounds is not None:
            add(f"{name}_lower", bounds.lower)
            add(f"{name}_upper", bounds.upper)

    for question in audit.questions:
        if question.result is not None:
            row = question.result.to_row()
            for number in NUMBERS:
                add(f"{question.name}.{number}", row[number])
    for rates in audit.rates:
        name = f"rates.{', '.join(rates.sensitive)}"
        ends(f"{name}.ratio", rates.ratio)
        ends(f"{name}.difference", rates.difference)
        if rates.statistical is not None:
            ends(f"{name}.statistical_ratio", rates.statistical.ratio)
            ends(f"{name}.statistical_difference", rates.statistical.difference)
    if audit.gate is not None:
        add("passed", float(audit.gate.passed))
    return found


def tags(audit: Audit) -> dict[str, str]:
    """What the audit was about, and its verdict."""
    about = {"version": __version__, "model": audit.model.fingerprint, "space": audit.space.fingerprint()}
    if audit.model.decision is not None:
        about["decision"] = audit.model.decision.text()
    return about if audit.gate is None else about | {"verdict": str(audit.gate.verdict)}


def artifacts(audit: Audit) -> dict[str, str]:
    """The files that go with the numbers, without the report; of a policy its own text, if it is still there."""

    def as_json(node: Any) -> str:
        return json.dumps(node, indent=1) + "\n"

    texts = {"audit.json": as_json(audit.to_json()), "space.json": as_json(audit.space.to_json())}
    texts["model_card.md"] = audit.to_model_card()
    if audit.gate is not None:
        texts |= {"gate.md": audit.gate.to_markdown(), "gate.xml": audit.gate.to_junit()}
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if audit.gate.policy:
                texts["policy.toml"] = Path(audit.gate.policy).read_text(encoding="utf-8")
    return texts
