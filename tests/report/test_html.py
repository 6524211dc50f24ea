"""The report: what it says, that it is one small file without scripts, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import boxqte
from boxqte import Attribute, Audit, Fairness, Space, audit, quantify
from boxqte.answers.result import ModelSummary
from boxqte.api.quantify import Quantification
from boxqte.auditing import gathering
from boxqte.auditing.findings import (
    NOTHING,
    Difference,
    Extent,
    Findings,
    Flip,
    FlipMatrix,
    HotNode,
    HotSpots,
    Pair,
    Profile,
    ProfileCell,
    Rule,
)
from boxqte.engines.protocol import Decided, Status
from boxqte.errors import ReportError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.report.html import MOST_BYTES, answer_sentence
from boxqte.report.limitations import limitations
from boxqte.report.mappings import DOCUMENTS, selection_rates
from boxqte.report.svg import Step, bounds_chart, steps_chart, ticks
from tests.browser import Browser, find_browser

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "boxqte audit model.json --data people.csv --sensitive sex,race"


@pytest.fixture(scope="module")
def found() -> Audit:
    """An audit of the example model; its bounds over time are made up, since the example is solved in no time."""
    done = audit(
        str(ROOT / "examples" / "model.json"),
        str(ROOT / "examples" / "people.csv"),
        label="granted",
        sensitive=["sex", "race"],
        infer={"categorical": ["race"]},
        engine="exhaustive",
        require=0.9,
        command=COMMAND,
    )
    slow = done.questions[0].result
    assert slow is not None
    trace = tuple((i / 10, 0.9038 * (1 - 0.8**i), 1 - 0.0961 * (1 - 0.7**i)) for i in range(1, 60))
    first = replace(done.questions[0], result=replace(slow, trace=trace, seconds=6.0))
    return replace(done, questions=(first, *done.questions[1:]))


@pytest.fixture(scope="module")
def page(found: Audit) -> str:
    return found.to_html()


def answer(decided: Decided, status: Status = Status.TIME, prop: Any = None) -> Quantification:
    return Quantification(prop or Fairness("sex"), ModelSummary("x", 1, 1, 1, ""), "box", status, decided, 0.1, ())


# --- what it says ---


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            answer(Decided(Fraction(3, 4), Fraction(1, 4)), Status.CONVERGED),
            "75 % of all inputs are treated fairly with respect to sex.",
        ),
        (
            answer(Decided(Fraction(1, 2), Fraction(1, 4)), prop=Fairness(["sex", "race", "age"], kappa="0.8")),
            "At least 50 % and at most 75 % of all inputs about which the model is more than 80 % sure are treated fairly with "
            "respect to sex, race and age.",
        ),
        (
            answer(Decided(low=Fraction(1)), Status.CONVERGED),
            "It is proved that the model is confident about no input at kappa 0.5: there is no share to give.",
        ),
    ],
)
def test_the_answer_is_one_sentence(result: Quantification, sentence: str) -> None:
    assert answer_sentence(result) == sentence


def test_the_page_has_answers_semantics_fingerprints_versions_and_the_command(found: Audit, page: str) -> None:
    for result in found.results:
        assert answer_sentence(result) in page
        assert page.count(result.guarantee()) == 1
        assert result.model.fingerprint in page
        assert result.space_fingerprint in page
    for line in found.results[0].semantics():
        assert line.split("'")[0] in page
    assert COMMAND in page
    assert f"boxqte {boxqte.__version__}" in page
    for heading in ("The answer", "Hot spots", "Who flips to what", "Group rates", "By attribute", "Pairs", "Appendix",
                    "Guarantee and semantics", "Bounds over time", "All regions", "Which value to which", "Data", "All inputs",
                    "Limitations", "Signature"):  # fmt: skip
        assert heading in page, heading


def test_rules_profiles_and_flips_are_those_of_the_result(found: Audit) -> None:
    result = found["sex"]
    findings = gathering.gather(result)
    table = result.regions(top=Extent().rules)
    assert [rule.mass for rule in findings.rules] == table["mass"].tolist()
    income = next(p for p in findings.profiles if p.attribute == "income")
    assert all(cell.settled for cell in income.cells)
    for end in ("lower", "upper"):
        masses = [cell.mass * getattr(cell, end) for cell in income.cells]
        assert sum(masses) == pytest.approx(result.counterexample.lower, abs=1e-9)
    (matrix,) = findings.matrices
    assert matrix.labels == ("f", "m")
    assert matrix.masses[0][0] is None
    assert matrix.masses[0][1] == pytest.approx((result.counterexample.lower / 2,) * 2, abs=2e-9)


def test_a_result_without_counterexamples_or_without_its_model_has_no_findings() -> None:
    assert gathering.gather(answer(Decided(1), Status.CONVERGED)) is NOTHING
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="exhaustive")
    assert gathering.gather(replace(result, asked=None)) is NOTHING
    assert "Hot spots" not in replace(result, asked=None).to_html()


# --- one small file ---


def test_the_page_needs_nothing_else(page: str) -> None:
    assert "<script" not in page
    assert not re.search(r"(src|href)=(?![\"']?#)", page)
    assert "@import" not in page
    assert "url(" not in page
    assert len(page.encode()) < MOST_BYTES * 2 / 3


def big() -> Findings:
    long = "a very long name of an attribute, " * 6
    return Findings(
        rules=tuple(Rule((f"{long} <= {i}",) * 50, 0.1, 0.1, 0.5, long) for i in range(20)),
        profiles=tuple(
            Profile(f"{long}{i}", tuple(ProfileCell(long, 0.1, 0.2, 0.1) for _ in range(60))) for i in range(16)
        ),
        matrices=(FlipMatrix(long, (long,) * 12, (((0.01, 0.01),) * 12,) * 12),),
        pairs=tuple(Pair(tuple(Difference(long, long, "x") for _ in range(40)), "no", "yes") for _ in range(10)),
    )


def test_a_page_with_too_much_to_show_shows_less(found: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "gather", lambda *_, **__: big())
    page = found.to_html()
    assert 50_000 < len(page.encode()) <= MOST_BYTES
    assert COMMAND in page


def test_whatever_stands_in_a_file_is_shown_and_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = '<script>alert("x")</script>'
    ensemble = replace(loan_ensemble(), feature_names=("income", evil, "age"))
    space = Space(
        [Attribute.real("income", 0, 1000), Attribute.categorical(evil, range(5)), Attribute.integer("age", 0, 100)]
    )
    monkeypatch.setattr(gathering, "gather", lambda *_, **__: NOTHING)
    done = audit(ensemble, space=space, sensitive=[evil], engine="exhaustive", command=f"boxqte '{evil}'")
    for text in (done.to_html(), done._repr_html_(), done.results[0]._repr_html_()):
        assert "<script" not in text
        assert "&lt;script&gt;" in text


# --- charts ---


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 1e-9), (-5, 1e12), (17, 90), (0.1, 0.1), (1e-300, 2e-300)])
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    found = ticks(low, high, 5)
    assert 1 <= len(found) <= 12
    assert all(low - 1e-9 * abs(low) <= t <= high * (1 + 1e-9) + 1e-300 for t in found)


def test_the_bounds_chart_is_small_however_long_the_run_was() -> None:
    trace = [(i / 1000, i / 1e6, 1 - i / 2e6) for i in range(1, 500_000)]
    assert len(bounds_chart(trace, "long", width=720, height=300)) < 40_000


def test_charts_say_in_words_what_they_show() -> None:
    assert "the lower bound is 0.500000 and the upper bound is 0.750000" in bounds_chart(
        [(2.0, 0.5, 0.75)], "x", width=720, height=300
    )
    steps = [Step(0, 1, (0.125, 0.125)), Step(1, 5, (0.4, 0.5)), Step(5, 6, None)]
    chart = steps_chart(steps, "age", "unfair share", width=360, height=200)
    assert "certain bounds; the most, 40 % to 50 %, between 1 and 5; 1 of 3 intervals are not decided." in chart


# --- notebooks ---


def test_results_show_themselves_in_a_notebook(found: Audit) -> None:
    text = found["race"]._repr_html_()
    assert "0.976716750695" in text
    assert "exact rational arithmetic" in text
    assert "Hot spots: together" in text
    assert found._repr_html_().count("<tr>") == 5
    assert "0.976716750695 (exactly 9985064919/10223091712); converged" in repr(found["race"])


# --- every number is the JSON's, and what it says of itself ---


def floats_in(node: Any) -> Iterator[float]:
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for part in node:
            yield from floats_in(part)
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        yield float(node)


def test_every_number_of_the_page_is_in_the_json(found: Audit) -> None:
    gathered = found.gathered()
    page = gathered.to_html(documents="nyc-ll144")
    known = set(floats_in(json.loads(json.dumps(gathered.to_json()))))
    told = re.findall(r'data-(?:lower|upper)="([^"]*)"', re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))
    assert len(told) > 300
    for number in told:
        assert float(number) in known, number
    charts = re.findall(r'<rect[^>]*data-lower="([^"]*)" data-upper="([^"]*)"', page)
    assert charts
    for ends in charts:
        assert {float(end) for end in ends} <= known, ends
    # what is no number of the JSON is no share: percentages stand in marked places only
    bare = page
    for tag in ("style", "svg", "span", "code", "pre"):
        bare = re.sub(rf"<{tag}\b.*?</{tag}>", "", bare, flags=re.DOTALL)
    sentences = {answer_sentence(result) for result in found.results} | texts_of(gathered)
    for findings in gathered.findings:  # their texts are the JSON's
        sentences |= {text for line in findings.blamed for text in (line.removed, line.share, line.measure)}
        sentences.add("; ".join(findings.blame) + ".")
    assert any(findings.blamed for findings in gathered.findings)
    sentences |= {flip for findings in gathered.findings for flip in (rule.flip for rule in findings.rules)}
    for text in re.findall(r">([^<>]*\d[\d.]*\s?%[^<>]*)<", bare):
        assert unescape(text) in sentences or text.startswith("["), text  # a remark has its own numbers


def texts_of(audit: Audit) -> set[str]:
    """What the tables of documents say."""
    return {
        text for name in DOCUMENTS for point in DOCUMENTS[name](audit).points for text in (point.asks, point.answer)
    }


def test_limitations_are_those_that_apply_and_stand_on_the_page_of_limits(found: Audit) -> None:
    listed = list(limitations(found))
    page = " ".join((ROOT / "docs" / "limits.md").read_text(encoding="utf-8").split())
    for line in listed:
        assert line in page
    bare = list(limitations(replace(found, data=None, population=None, inference=None, questions=found.questions[:1])))
    assert any("No data was given" in line for line in bare)
    assert not any("No data was given" in line for line in listed)
    assert not any("Robustness is about" in line for line in bare)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_mapping_says_what_is_answered_and_what_is_not(found: Audit, name: str) -> None:
    points = DOCUMENTS[name](found).points
    assert any(point.answered for point in points)
    assert any(not point.answered for point in points)
    page = found.gathered(time_limit=5).to_html(documents=name)
    assert "no legal advice" in page
    assert DOCUMENTS[name](found).title in page
    without = DOCUMENTS[name](replace(found, data=None, description=None, row_rates=(), rates=()))
    assert sum(p.answered for p in without.points) <= sum(p.answered for p in points)


def test_an_unknown_document_is_one_line(found: Audit) -> None:
    with pytest.raises(
        ReportError, match="documents: 'gdpr' is no document that is known; known are eu-ai-act, sr-26-2"
    ):
        found.to_html(documents=["gdpr"])


def test_impact_ratios_are_those_of_the_rows(found: Audit) -> None:
    import pandas as pd
    import xgboost

    people = pd.read_csv(ROOT / "examples" / "people.csv")
    booster = xgboost.Booster(model_file=ROOT / "examples" / "model.json")
    columns = people[["income", "age", "sex", "race"]].astype({"sex": pd.CategoricalDtype(["f", "m"])})
    margin = booster.predict(xgboost.DMatrix(columns, enable_categorical=True), output_margin=True)
    chosen = people.assign(chosen=margin > 0)
    tables = dict(selection_rates(found))
    assert set(tables) == {"sex", "race", "sex, race"}
    rates = chosen.groupby("sex")["chosen"].mean()
    assert {row.category: row.rate for row in tables["sex"]} == pytest.approx(rates.to_dict())
    assert {row.category: row.ratio for row in tables["sex"]} == pytest.approx((rates / rates.max()).to_dict())
    assert len(tables["sex, race"]) == 10


# --- in a real browser ---

BROWSER = find_browser()
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (.ci/run installs it where it can)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BROWSER is not None
    opened = Browser(BROWSER)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, found: Audit, page: str) -> dict[str, Path]:
    """The real page, and one with long names and all kinds of findings."""
    folder = tmp_path_factory.mktemp("report")
    spots = [
        HotNode(
            i % 3,
            f"a_long_name_without_any_space_in_it_{i} in ['Self-emp-not-inc', 'Never-worked']",
            i // 3 + 1 if i % 3 == 2 else None,
            0.01,
            (0.1, 0.2),
            (2.5, None),
            (0.05, 0.06),
        )
        for i in range(9)
    ]
    full = Findings(
        hotspots=HotSpots(tuple(spots), (0.5, 0.6), 2.0),
        flips=(Flip("refused as Amer-Indian-Eskimo, granted as White", 0.01, 0.02),),
        rules=tuple(Rule(("age >= 30", f"income < {i}", "race in [0, 1, 4]"), 0.01, 0.1, 0.5, "f: 0; m: 1") for i in range(9)),
        profiles=(
            Profile("age", tuple(ProfileCell(str(i), i / 100, i / 100, 0.01, float(i), i + 1.0) for i in range(18, 80))),
            Profile("workclass", tuple(ProfileCell(f"Self-emp-not-inc {i}", i / 9, i / 9, 0.01) for i in range(9))),
        ),
        matrices=(FlipMatrix("race", ("Amer-Indian-Eskimo", "Asian", "White"), ((None, (0.1, 0.1), (0.02, None)),) * 3),),
        pairs=tuple(
            Pair((Difference("a_long_name_without_any_space_in_it_at_all_1234567890", "1", "1", "2"),
                  Difference("sex", "f", "m", "f")), "refused", "granted", row) for row in (None, *range(9))
        ),
        notes=("Drawn from the decided part.",),
    )  # fmt: skip
    real = gathering.gather
    gathering.gather = lambda *_, **__: full  # type: ignore[assignment]
    try:
        made = found.to_html(documents=tuple(DOCUMENTS))
    finally:
        gathering.gather = real
    (folder / "real.html").write_text(page, encoding="utf-8")
    (folder / "full.html").write_text(made, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in ("real", "full")}


VIEWS = [(width, dark) for width in (1280, 390) for dark in (False, True)]
OVERFLOW = """[...document.body.querySelectorAll('*')].filter(e => {
  const box = e.getBoundingClientRect();
  const inside = p => p && p !== document.body && (p.matches('.scroll') || inside(p.parentElement));
  return box.width && (box.right > innerWidth + 1 || box.left < -1) && !inside(e);
}).map(e => e.outerHTML.slice(0, 200))"""
CUT_LABELS = """[...document.querySelectorAll('svg.chart')].filter(s => s.getBoundingClientRect().width).flatMap(s => {
  const frame = s.getBoundingClientRect();
  return [...s.querySelectorAll('text')].filter(t => {
    const box = t.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1 || box.top < frame.top - 1;
  }).map(t => t.textContent);
})"""
SMALL_TEXT = """[...document.querySelectorAll('svg.chart')].filter(s => s.getBoundingClientRect().width).flatMap(s =>
  [...s.querySelectorAll('text')].filter(t => t.getBoundingClientRect().height && Math.min(t.getBoundingClientRect().height,
    t.getBoundingClientRect().width + 99) < 9).map(t => t.textContent))"""
# axe leaves contrast open where it cannot tell what lies behind a text; this one blends every ground down to the page's.
CONTRAST = """(() => {
  const parse = c => { const n = c.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const over = (top, ground) => [0, 1, 2].map(i => top[i] * top[3] + ground[i] * (1 - top[3]));
  const ground = e => {
    const own = parse(getComputedStyle(e).backgroundColor);
    return e === document.documentElement ? over(own, [255, 255, 255]) : over(own, ground(e.parentElement));
  };
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + .05) / (Math.min(light(a), light(b)) + .05);
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!text || !e.getBoundingClientRect().width) continue;
    const style = getComputedStyle(e);
    const behind = ground(e instanceof SVGElement ? e.closest('svg').parentElement : e);
    const ink = over(parse(e instanceof SVGElement ? style.fill : style.color), behind);
    if (ratio(ink, behind) < 4.5) found.push(ratio(ink, behind).toFixed(2) + ' ' + e.outerHTML.slice(0, 120));
  }
  return found;
})()"""
NAMELESS = """[...document.querySelectorAll('svg.chart')].filter(s => s.getBoundingClientRect().width).filter(s =>
  !s.getAttribute('aria-label') || s.querySelectorAll('text.name').length !== 2).length"""


@in_browser
@pytest.mark.parametrize(("width", "dark"), VIEWS)
@pytest.mark.parametrize("name", ["real", "full"])
def test_nothing_overflows_and_charts_have_their_labels(
    browser: Browser, files: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    browser.open(files[name], width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(OVERFLOW) == []
    assert browser.run("document.querySelectorAll('svg.chart').length") > 0
    assert browser.run(CUT_LABELS) == []
    assert browser.run(SMALL_TEXT) == []
    assert browser.run(NAMELESS) == 0


@in_browser
@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_axe_finds_nothing(browser: Browser, files: dict[str, Path], width: int, dark: bool) -> None:
    package = pytest.importorskip("axe_core_python", reason="axe-core-python (extra 'test') is not installed")
    axe = Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    browser.open(files["full"], width=width, dark=dark)
    browser.run(axe + "; 0")
    found = browser.run(
        "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.help + ' ' + v.nodes[0].html.slice(0, 200)))"
    )
    assert found == []
    assert browser.run(CONTRAST) == []
    assert browser.run("axe.run().then(r => r.passes.some(p => p.id === 'color-contrast'))")


@in_browser
def test_dark_and_light_are_different_and_both_have_contrast(browser: Browser, files: dict[str, Path]) -> None:
    grounds = []
    for dark in (False, True):
        browser.open(files["real"], width=1280, dark=dark)
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]


@in_browser
def test_the_answer_takes_at_most_six_screens(browser: Browser, files: dict[str, Path]) -> None:
    browser.open(files["real"], width=1280, dark=False)
    assert browser.run("document.getElementById('appendix').getBoundingClientRect().top + scrollY") <= 6 * 1024


@in_browser
def test_it_prints(browser: Browser, files: dict[str, Path]) -> None:
    browser.open(files["real"], width=1280, dark=True)
    assert browser.pdf().startswith(b"%PDF")
