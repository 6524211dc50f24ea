"""Which points of a regulation an audit answers, with the number, and which it does not. No legal advice.

Each mapping is a table of points in our own words. What a point asks for is for the reader to look up in the document itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from boxqte.answers.result import Result
from boxqte.auditing.audit import Audit
from boxqte.basics.checks import as_names
from boxqte.basics.numbers import CELL, number_text
from boxqte.errors import ReportError
from boxqte.report.text import best_text, ratio_text, rows_text

NO_ADVICE = (
    "This table says where the audit's numbers may serve as evidence. It is no legal advice, and no statement that anything "
    "complies."
)
LEAST_SHARE = 0.02  # of the rows: Local Law 144's rules let an auditor leave out smaller categories, with a reason


@dataclass(frozen=True)
class Point:
    """What a document asks for, and what the audit has of it; `answered` is False where it has nothing."""

    where: str
    asks: str
    answer: str
    answered: bool = True


@dataclass(frozen=True)
class RateRow:
    """The selection rate of a category in the rows, and its ratio to the largest one."""

    category: str
    rows: int
    selected: int
    rate: float | None
    ratio: float | None
    small: bool
    """Whether the category has less than 2 % of the rows."""


@dataclass(frozen=True)
class Document:
    """A regulation and the points of it."""

    name: str
    title: str
    points: tuple[Point, ...]
    rates: tuple[tuple[str, tuple[RateRow, ...]], ...] = ()


def read_documents(names: object) -> tuple[str, ...]:
    """The documents that are asked for, by their short names."""
    given = () if names is None else as_names(names, "documents", ReportError)
    for name in given:
        if name not in DOCUMENTS:
            raise ReportError(f"documents: '{name}' is no document that is known; known are {', '.join(DOCUMENTS)}")
    return given


def documents(audit: Audit, names: tuple[str, ...]) -> Iterator[Document]:
    """The mappings of an audit."""
    for name in names:
        yield DOCUMENTS[name](audit)


# --- what the audit has -----------------------------------------------------------------------------------------------


def _measures(audit: Audit, kinds: tuple[str, ...] = ("fairness",)) -> str:
    """The measures of some questions, world by world."""
    said = []
    for question in audit.questions:
        if question.result is None or question.property.kind not in kinds:
            continue
        worlds = [("over the space", best_text(question.result)), ("over the population", best_text(question.population)),
                  ("in the rows", rows_text(question.rows))]  # fmt: skip
        said.append(f"{question.name}: " + ", ".join(f"{where} {number}" for where, number in worlds if number))
    return "; ".join(said)


def _or_nothing(where: str, asks: str, answer: str, without: str) -> Point:
    return Point(where, asks, answer) if answer else Point(where, asks, f"Not answered: {without}.", False)


def _data(audit: Audit) -> str:
    known = audit.description
    if known is None:
        return ""
    label = (
        ""
        if known.positive_rate is None
        else f", label rate {number_text(known.positive_rate, known.positive_rate, CELL)}"
    )
    return f"{known.source}: {known.rows:,} rows, {known.columns} columns{label}; fingerprint {known.fingerprint[:16]}."


def _accuracy(audit: Audit) -> str:
    known = audit.description
    if known is None or known.accuracy is None:
        return ""
    area = "" if known.auc is None else f", AUC {known.auc:.4f}"
    return f"Accuracy {known.accuracy:.4f}{area} on the given rows."


def _rates(audit: Audit) -> str:
    return "; ".join(f"by {', '.join(r.sensitive)}: smallest by largest rate {ratio_text(r)}" for r in audit.rates)


def _signed(audit: Audit) -> str:
    signed = audit.signed
    who = f", prepared by {signed.author}" if signed.author else "; no author is named (--author)"
    return f"Dated {signed.date}{who}. The signature is for a person to give, at the end of this report."


def _limits(_: Audit) -> str:
    return "Section 'Limitations' of this report."


def _status(results: tuple[Result, ...]) -> str:
    done = sum(result.converged for result in results)
    return f"{done} of {len(results)} questions are decided for every input; the others have certain bounds."


# --- the documents ----------------------------------------------------------------------------------------------------


def _eu_ai_act(audit: Audit) -> Document:
    robust = _measures(audit, ("robustness",))
    points = (
        Point("Annex IV 2(g)", "validation and testing procedures",
              f"Exact counting over all inputs, with proof; semantics and guarantee in the appendix. {_status(audit.results)}"),
        _or_nothing("Annex IV 2(g)", "validation and testing data and their main characteristics", _data(audit),
                    "no data was given (--data)"),
        _or_nothing("Annex IV 2(g)", "metrics for accuracy", _accuracy(audit), "no data with a label was given"),
        _or_nothing("Annex IV 2(g)", "metrics for robustness", robust, "the robustness question was left out"),
        Point("Annex IV 2(g)", "potentially discriminatory impacts", f"{_measures(audit)}. {_rates(audit)}".strip()),
        Point("Annex IV 2(g)", "test logs and reports, dated and signed",
              f"{_signed(audit)} The command and all versions are in the appendix; --json keeps every number."),
        Point("Annex IV 1, 2(a) to (f), 2(h), 3 to 9", "all other parts of the technical documentation",
              "Not answered: they are about the system, not about this model's decisions.", False),
    )  # fmt: skip
    return Document("eu-ai-act", "EU AI Act (Regulation 2024/1689), Annex IV: technical documentation", points)


def _sr_26_2(audit: Audit) -> Document:
    purpose = audit.signed.purpose
    points = (
        _or_nothing("purpose", "what the model is for, and its materiality", purpose, "no purpose was stated (--purpose)"),
        Point("conceptual soundness", "evidence that the design and the logic are appropriate",
              f"What the sensitive attributes do to the decision, over all inputs: {_measures(audit)}. Hot spots show where."),
        _or_nothing("conceptual soundness", "behaviour under small changes of the inputs",
                    _measures(audit, ("robustness", "monotonicity")), "robustness and monotonicity were not asked"),
        _or_nothing("outcomes analysis", "outcomes compared with what happened", _accuracy(audit),
                    "no data with a label was given"),
        Point("limitations", "the model's and the test's limitations", _limits(audit)),
        Point("documentation", "enough for a third party to repeat it",
              "Command, versions and fingerprints of model, space and data are in the appendix."),
        Point("ongoing monitoring, governance, vendors", "what happens after the release",
              "Not answered: `boxqte gate` can repeat the check at every release; the rest is the institution's.", False),
    )  # fmt: skip
    return Document("sr-26-2", "SR 26-2, model risk management (in place of SR 11-7 since April 2026)", points)


def _nyc_ll144(audit: Audit) -> Document:
    tables = tuple(selection_rates(audit))
    points = (
        Point("selection rates and impact ratios", "by sex, by race/ethnicity, and by their intersection",
              "The tables below, from the given rows." if tables else "Not answered: no data was given (--data).",
              bool(tables)),
        Point("small categories", "categories below 2 % of the data may be left out, with a reason",
              "Marked below; nothing was left out." if tables else "Not answered: no data was given.", bool(tables)),
        Point("unknown sex or race", "how many people are in no category",
              _missing(audit) if tables else "Not answered: no data was given.", bool(tables)),
        Point("independent auditor, annual, historical data, notice, publication", "who audits, when, on what data",
              "Not answered: a matter of who uses this report, and how.", False),
    )  # fmt: skip
    return Document(
        "nyc-ll144", "New York City Local Law 144: bias audits of employment decision tools", points, tables
    )


def _ecoa(audit: Audit) -> Document:
    points = (
        Point("disparate treatment", "is an applicant treated otherwise on a prohibited basis?",
              f"The flip test is about just this: does the decision change if only the attribute changes? {_measures(audit)}. "
              "Hot spots and pairs show for whom."),
        _or_nothing("disparate impact", "do groups fare differently under a neutral rule?", _rates(audit),
                    "group rates were not asked; a business justification is outside of any measurement"),
        Point("adverse action reasons", "why an applicant was refused",
              "Not answered: a pair shows that a decision changed, not the principal reasons.", False),
        Point("proxies", "neutral attributes that stand for a prohibited basis",
              "Not answered: what stays the same when the attribute changes is not seen.", False),
    )  # fmt: skip
    return Document("ecoa", "Equal Credit Opportunity Act, Regulation B", points)


DOCUMENTS: Mapping[str, Callable[[Audit], Document]] = {
    "eu-ai-act": _eu_ai_act,
    "sr-26-2": _sr_26_2,
    "nyc-ll144": _nyc_ll144,
    "ecoa": _ecoa,
}


# --- selection rates --------------------------------------------------------------------------------------------------


def selection_rates(audit: Audit) -> Iterator[tuple[str, tuple[RateRow, ...]]]:
    """For every sensitive attribute, and for their intersections, each category's selection rate in the rows."""
    for rates in audit.row_rates:
        rows = sum(data.rows for _, data in rates.groups)
        best = max((data.rate or 0.0 for _, data in rates.groups), default=0.0)
        yield (
            ", ".join(rates.sensitive),
            tuple(
                RateRow(
                    name,
                    data.rows,
                    data.positive,
                    data.rate,
                    data.rate / best if best and data.rate is not None else None,
                    data.rows < LEAST_SHARE * rows,
                )
                for name, data in rates.groups
            ),
        )


def _missing(audit: Audit) -> str:
    found = [f"{rates.outside:,} rows by {', '.join(rates.sensitive)}" for rates in audit.row_rates]
    return f"Outside of all categories of the space: {'; '.join(found)}."
