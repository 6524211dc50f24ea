"""The net under the reports: every number that a person is shown is read back from the text and asked of the oracle.

Random small problems, answered in full, cut off after some nodes, or from draws alone, are made into an audit. Its HTML
page, printed table, pandas table, JSON, Markdown and JUnit XML are parsed as a reader would read them: two numbers contain
the truth, one number is the truth to its last digit, and what is called exact is.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from boxqte import Audit, Fairness, Requirement, Robustness, quantify
from boxqte.answers.quantify import summary
from boxqte.api.gate import GateReport
from boxqte.auditing.audit import Question, _share_proofs
from boxqte.auditing.policy import judge
from boxqte.models.importers import load_model
from boxqte.questions.properties import Property
from boxqte.space.attributes import Attribute
from tests.naive import MISSING, ZERO, NaiveRow
from tests.naive_classes import random_class_problem
from tests.net import SMALL, Truth, in_words, rule_holds, truth_of
from tests.strategies import Problem, random_problem

IN_CI, IN_ALL = 120, 1_000
NOISE = Fraction(1, 10**11)  # floats: what the engines prove their masses up to
NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"


# --- reading numbers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What a text says of a number: that it lies between two others; `statistical` says it is likely only."""

    lower: Fraction
    upper: Fraction
    statistical: bool = False

    def holds(self, truth: Fraction) -> bool:
        return self.lower <= truth <= self.upper


def half_digit(text: str) -> Fraction:
    """Half of a unit in the last digit: how far a rounded number may be off."""
    digits, _, exponent = text.partition("e")
    return Fraction(1, 2) / 10 ** len(digits.partition(".")[2]) * Fraction(10) ** int(exponent or 0)


def rounded_number(text: str) -> tuple[Fraction, Fraction]:
    """`0.25`, `1.5e-9` or `1 - 1e-20`: the number, and how far it may be off."""
    flipped = text.startswith("1 - ")
    digits = text.removeprefix("1 - ")
    value = Fraction(digits)
    exact = "." not in digits and "e" not in digits  # 0 and 1 are never rounded
    return (1 - value if flipped else value), Fraction(0) if exact else half_digit(digits)


def read(text: str) -> Said:
    """A labelled number: `0.1 to 0.2 (certain)`, `between ... and ...`, `0.25 (exactly 1/4)`, `... (statistical, ...)`."""
    found = re.fullmatch(
        r"(.*?) \((exact|exactly ([\d/]+)|certain|certain, error at most (\S+)|statistical, .*)\)", text
    )
    assert found, text
    number, label, fraction, error = found[1], found[2], found[3], found[4]
    two = re.fullmatch(rf"(?:between )?({NUMBER}) (?:and|to) ({NUMBER})", number)
    if two:
        assert label == "certain" or label.startswith("statistical, confidence 0.")
        return Said(Fraction(two[1]), Fraction(two[2]), label != "certain")
    value, off = rounded_number(number)
    if fraction:
        assert abs(Fraction(fraction) - value) <= off
        return Said(Fraction(fraction), Fraction(fraction))
    if error:
        off = Fraction(error)
    elif label == "certain":
        off = max(off, Fraction(1, 10**6))
    return Said(value - off, value + off)


def read_percent(text: str) -> Said:
    """A percentage in a table: `1.5 %`, `1.5 % to 2 %`, `at least 2 %`, `less than 0.0001 %`."""
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    numbers = re.findall(rf"({NUMBER}) %", text)
    values = [Fraction(n) / 100 for n in numbers]
    if re.fullmatch(rf"{NUMBER} % to {NUMBER} %", text):
        return Said(values[0], values[1])
    assert len(values) == 1, text
    if text.startswith("at least "):
        return Said(values[0], Fraction(1))
    if text.startswith("less than "):
        return Said(Fraction(0), values[0])
    if text.startswith("more than "):
        return Said(values[0], Fraction(1))
    assert re.fullmatch(rf"{NUMBER} %", text), text
    off = half_digit(numbers[0]) / 100 if "." in numbers[0] or "e" in numbers[0] else Fraction(1, 200)
    return Said(values[0] - off, values[0] + off)


# --- reading the page -------------------------------------------------------------------------------------------------


@dataclass
class Table:
    """A table, or (`steps`) a chart, of the page."""

    caption: str = ""
    rows: list[list[str]] = field(default_factory=list)
    marks: list[dict[str, str]] = field(default_factory=list)
    """The data-... attributes of the numbers, in order."""


@dataclass
class Section:
    title: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    charts: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def table(self, start: str) -> Table | None:
        return next((t for t in self.tables if t.caption.startswith(start)), None)


class Page(HTMLParser):
    """The sections of a report, with their facts, tables and charts."""

    def __init__(self, text: str):
        super().__init__()
        self.sections: list[Section] = []
        self._text: list[str] | None = None
        self._figure: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in given}
        if tag == "section":
            self.sections.append(Section())
        if tag in ("h2", "dt", "dd", "caption", "th", "td"):
            self._text = []
        if tag == "table":
            self.sections[-1].tables.append(Table())
        if tag == "tr":
            self.sections[-1].tables[-1].rows.append([])
        if tag == "figure":
            self._figure = attributes.get("data-attribute")
        if "data-lower" in attributes:
            marks = {name.removeprefix("data-"): value for name, value in attributes.items() if "data-" in name}
            if tag == "rect":
                self.sections[-1].charts.setdefault(self._figure or "", []).append(marks)
            else:
                self.sections[-1].tables[-1].marks.append(marks)

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if self._text is None or tag not in ("h2", "dt", "dd", "caption", "th", "td"):
            return
        text, self._text, here = "".join(self._text), None, self.sections[-1]
        if tag == "h2":
            here.title = text
        elif tag == "dt":
            here.facts.append((text, ""))
        elif tag == "dd":
            here.facts[-1] = (here.facts[-1][0], text)
        elif tag == "caption":
            here.tables[-1].caption = text
        else:
            here.tables[-1].rows[-1].append(text)


# --- the truth --------------------------------------------------------------------------------------------------------


def measure_of(truth: Truth) -> Fraction | None:
    return 1 - truth.unfair() / truth.confident if truth.confident else None


def legible(truth: Truth, attribute: Attribute) -> bool:
    """Whether the seven digits of the page tell the pieces of the attribute apart."""
    if attribute.kind != "real":
        return True
    intervals = {(p.low, p.high) for row in truth.rows if (p := row.pieces[attribute.name]).is_interval}
    width = attribute.high - attribute.low
    return width > 0 and all(high - low > width / 10**4 and width > Fraction(1, 100) for low, high in intervals)


# --- an audit of a random problem -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    audit: Audit
    truths: dict[str, Truth]
    seconds: float | None

    def of(self, name: str) -> Truth:
        return self.truths[name]


def questions_of(problem: Problem) -> list[tuple[str, Property]]:
    """The property itself, and each of its sensitive attributes alone."""
    prop = problem.property
    asked = [(", ".join(prop.sensitive) or "robustness", prop)]
    if len(prop.sensitive) > 1:
        epsilon = prop.epsilon if isinstance(prop.epsilon, Fraction) else dict(prop.epsilon)
        asked += [(name, Fairness(name, epsilon, prop.kappa, tie=prop.tie)) for name in prop.sensitive]
    elif prop.sensitive and not isinstance(prop.epsilon, Fraction):
        asked.append(("robustness", Robustness(dict(prop.epsilon), prop.kappa, tie=prop.tie)))
    return asked


def case_of(seed: int) -> Case:
    rng = random.Random(f"report {seed}")
    problem = (
        random_class_problem(rng.getrandbits(32), **SMALL) if rng.random() < 0.25 else random_problem(rng, **SMALL)
    )
    asked = questions_of(problem)
    how: dict[str, Any] = rng.choice(
        [
            {"engine": "exhaustive"},
            {"engine": "box"},
            {
                "engine": "box",
                "node_limit": rng.randint(1, 6),
                "options": {"finish_limit": 5, "call_nodes": 1, "batch": 1},
            },
            {"engine": "sample", "options": {"points": 300, "seed": seed}},
        ]
    )
    questions = []
    for name, prop in asked:
        result = quantify(problem.ensemble, problem.space, prop, workers=1, **how)
        questions.append(Question(name, prop, result))
    shared = _share_proofs(questions)
    level = Fraction(rng.randint(1, 20), 20)
    checks = tuple(judge(Requirement(q.property, level, name=q.name), q.result) for q in shared if q.result is not None)
    imported = load_model(problem.ensemble)
    audit = Audit(shared, problem.space, summary(imported), gate=GateReport(checks, "model", "policy"))
    truths = {name: truth_of(Problem(problem.ensemble, problem.space, prop)) for name, prop in asked}
    return Case(audit, truths, rng.choice([None, None, 1e-4, 0.2]))


def check(seed: int) -> None:
    case = case_of(seed)
    page = Page(case.audit.to_html(time_limit=float("inf") if case.seconds is None else case.seconds))
    overview = page.sections[0].table("Every question")
    assert overview is not None
    check_answers(case, overview.rows)
    for section in page.sections:
        if section.title in case.truths:
            check_section(section, case.truths[section.title], case)
    check_printed(case)
    check_frame(case)
    check_json(case)
    check_markdown(case)
    check_junit(case)


def check_measure(text: str, truth: Truth) -> None:
    if text.startswith("undefined"):
        assert measure_of(truth) is None
    elif measure_of(truth) is not None:
        number = text.partition("; ")[0].partition(" [")[0]  # behind it stands what it does not say
        assert read(number).holds(measure_of(truth)), text


def check_answers(case: Case, rows: Sequence[Sequence[str]]) -> None:
    """The table of all questions, on the page and in print."""
    head, *lines = rows
    assert len(lines) == len(case.truths)
    for line in lines:
        cells = dict(zip(head, line))
        truth = case.of(cells["question"])
        check_measure(cells["measure"], truth)
        result = case.audit[cells["question"]]
        drawn = result.statistical
        for caveat in () if result.undefined else result.caveats:
            assert f"; {caveat}" in cells["measure"]
        assert len(re.findall(r" \[\d+\]", cells["measure"])) == len(result.remarks)
        assert bool(cells.get("statistical")) == (drawn is not None)
        if drawn is not None and measure_of(truth) is not None:
            said = read(cells["statistical"])
            assert said.statistical
            assert said.holds(measure_of(truth))
        check_verdict(cells["verdict"], truth)


def check_verdict(text: str, truth: Truth) -> None:
    found = re.match(r"(holds|violated|undecided)(?: \(at least (.*)\))?", text)
    assert found, text
    if found[2] and measure_of(truth) is not None:
        required = Fraction(found[2])
        assert found[1] != "holds" or measure_of(truth) >= required
        assert found[1] != "violated" or measure_of(truth) < required


# --- one question of the page -----------------------------------------------------------------------------------------


def check_section(section: Section, truth: Truth, case: Case) -> None:
    facts = dict(section.facts)
    check_measure(facts["measure"], truth)
    assert read(facts["confident mass"]).holds(truth.confident)
    assert read(facts["counterexample mass"]).holds(truth.unfair())
    if "statistical" in facts and measure_of(truth) is not None:
        assert read(facts["statistical"]).holds(measure_of(truth))
    for table in section.tables:
        if table.caption.startswith("Unfair share by "):
            check_profile(table, truth)
    for name, steps in section.charts.items():
        check_chart(name, steps, truth)
    regions = section.table("The largest regions")
    if regions is not None:
        check_regions(regions, truth)
    matrix = next((t for t in section.tables if "rows are the input's own value" in t.caption), None)
    if matrix is not None:
        check_matrix(matrix, truth)
    if case.seconds is None and case.audit[section.title].converged and truth.unfair():
        assert "not decided within the time" not in str(section)


def check_profile(table: Table, truth: Truth) -> None:
    attribute = truth.problem.space[table.caption.removeprefix("Unfair share by ")]
    if not legible(truth, attribute):
        return
    for label, *shares in table.rows[1:]:

        def mine(row: NaiveRow, label: str = label) -> bool:
            return in_words(attribute, label, row.x[attribute.name])

        mass = truth.mass(mine)
        assert mass > 0
        for text in shares:
            if text not in ("", "not decided within the time"):
                assert read_percent(text).holds(truth.unfair(mine) / mass), (attribute.name, label, text)


def check_chart(name: str, steps: Sequence[dict[str, str]], truth: Truth) -> None:
    attribute = truth.problem.space[name]
    if not legible(truth, attribute):
        return
    for step in steps:
        low, high = Fraction(step["low"]), Fraction(step["high"])

        def mine(row: NaiveRow, low: Fraction = low, high: Fraction = high) -> bool:
            value = row.x[attribute.name]
            return value is not MISSING and (
                low <= value < high if attribute.kind == "integer" else low <= value <= high
            )

        mass = truth.mass(mine)
        share = truth.unfair(mine) / mass if mass else ZERO
        assert Fraction(step["lower"]) <= share <= Fraction(step["upper"]), (name, step)
        assert step["kind"] in ("certain", "statistical")


def check_regions(table: Table, truth: Truth) -> None:
    head, *lines = table.rows
    for line in lines:
        cells = dict(zip(head, line))
        rule = cells["region"]
        if not all(legible(truth, a) for a in truth.problem.space) or re.search(r"\d\.\d{6}|\d{7}", rule):
            return  # the page shows seven digits

        def mine(row: NaiveRow, rule: str = rule) -> bool:
            return rule_holds(rule, row.x)

        found, mass = truth.unfair(mine), truth.mass(mine)
        for column, share in (
            ("of all inputs", found),
            ("of the unfair", found / truth.unfair()),
            ("unfair inside", found / mass),
        ):
            said = read_percent(cells[column])
            assert said.lower - NOISE <= share <= said.upper + NOISE, (rule, column, cells[column])


def check_matrix(table: Table, truth: Truth) -> None:
    attributes = [
        truth.problem.space[name] for name in truth.problem.space.names if name in truth.problem.property.sensitive
    ]
    if any(a.kind == "real" for a in attributes):
        return  # whether an end of an interval belongs to it, the text does not say
    order = [truth.problem.property.sensitive.index(a.name) for a in attributes]

    def holds(text: str, values: Sequence[Any]) -> bool:
        return all(in_words(a, word, v) for a, word, v in zip(attributes, text.split(", "), values))

    head, *lines = table.rows
    for one, *cells in lines:
        mine = [r for r in truth.rows if r.counterexample and holds(one, [r.x[a.name] for a in attributes])]
        for two, text in zip(head[1:], cells):
            turned = [r for r in mine if any(holds(two, [w[k] for k in order]) for w in r.witness_values)]
            expected = sum((r.mass for r in turned), ZERO)
            assert text != "–" or not expected
            assert text == "–" or read_percent(text).holds(expected), (one, two, text)


# --- elsewhere --------------------------------------------------------------------------------------------------------


def check_printed(case: Case) -> None:
    lines = str(case.audit).splitlines()
    starts = [m.start() for m in re.finditer(r"\S+", lines[0])]
    spans = list(zip(starts, [*starts[1:], None]))
    rows = [[line[a:b].strip() for a, b in spans] for line in lines[: 1 + len(case.truths)]]
    check_answers(case, rows)
    for line in lines[1 + len(case.truths) :]:
        assert re.match(r"\[\d+\] ", line)


def check_frame(case: Case) -> None:
    for row in case.audit.to_frame().to_dict("records"):
        truth = case.truths[row["question"]]
        if measure_of(truth) is None or row["lower"] is None:
            continue
        assert row["lower"] <= measure_of(truth) <= row["upper"]
        drawn = case.audit[row["question"]].statistical
        if drawn is not None:
            assert row["statistical_lower"] <= measure_of(truth) <= row["statistical_upper"]
            assert row["confidence"] == drawn.confidence


def check_json(case: Case) -> None:
    document = json.loads(json.dumps(case.audit.to_json()))
    for entry in document["questions"]:
        truth, said = case.truths[entry["name"]], entry["result"]
        for name, mass in (("confident", truth.confident), ("counterexample", truth.unfair())):
            assert Fraction(said["mass"][name][0]) <= mass <= Fraction(said["mass"][name][1])
        assert said["remarks"] == list(case.audit[entry["name"]].remarks)
        if measure_of(truth) is not None:
            assert Fraction(said["measure"]["lower"]) <= measure_of(truth) <= Fraction(said["measure"]["upper"])
            if said["statistical"] is not None:
                assert said["statistical"]["lower"] <= measure_of(truth) <= said["statistical"]["upper"]


def check_markdown(case: Case) -> None:
    assert case.audit.gate is not None
    lines = [re.sub(r"\\(.)", r"\1", line) for line in case.audit.gate.to_markdown().splitlines()]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    head, *rest = rows
    for row in rest:
        cells = dict(zip(head, row))
        truth = case.truths[cells["requirement"]]
        check_measure(cells["measure"], truth)
        if case.audit[cells["requirement"]].statistical is not None and measure_of(truth) is not None:
            assert read(cells["statistical"]).holds(measure_of(truth))
        check_verdict(f"{cells['verdict'][2:]} ({cells['required']})", truth)


def check_junit(case: Case) -> None:
    assert case.audit.gate is not None
    for test in ElementTree.fromstring(case.audit.gate.to_junit()).iter("testcase"):
        truth = case.truths[test.attrib["name"]]
        failed = test.find("failure") if test.find("failure") is not None else test.find("error")
        text = test.findtext("system-out", "") if failed is None else failed.attrib["message"]
        said = re.match(r"(\w+): required at least (\S+), the measure is (.*)", text)
        assert said, text
        measure, *more = said[3].split("; ")
        check_measure(measure, truth)
        check_verdict(f"{said[1]} (at least {said[2]})", truth)
        drawn = [part for part in more if "(statistical, " in part]
        assert len(drawn) == (case.audit[test.attrib["name"]].statistical is not None)
        if drawn and measure_of(truth) is not None:
            assert read(drawn[0]).holds(measure_of(truth))


@pytest.mark.parametrize("start", range(0, IN_CI, 20))
def test_what_reports_say_is_what_the_oracle_says(start: int) -> None:
    for seed in range(start, start + 20):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(IN_CI, IN_ALL, 20))
def test_what_reports_say_is_what_the_oracle_says_on_many_problems(start: int) -> None:
    for seed in range(start, start + 20):
        check(seed)
