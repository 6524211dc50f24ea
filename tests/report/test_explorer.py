"""The explorer in a real Chromium: it chooses the library's leaves and classes, and is a page that everybody can use."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxqte import Attribute, Fairness, Space, load_model, quantify
from boxqte.cli.main import main
from boxqte.errors import ReportError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import TreeEnsemble
from boxqte.report.explorer import explorer_part
from tests.browser import Browser, find_browser
from tests.conformance.suite import boundary_rows
from tests.naive_classes import random_class_problem
from tests.report.test_html import CONTRAST, OVERFLOW
from tests.strategies import random_problem

ROOT = Path(__file__).resolve().parents[2]
BROWSER = find_browser()
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (.ci/run installs it where it can)")
VIEWS = [(width, dark) for width in (1280, 390) for dark in (False, True)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BROWSER is not None
    opened = Browser(BROWSER)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the example model, with its explorer."""
    space = Space.load(ROOT / "examples" / "space.json")
    result = quantify(ROOT / "examples" / "model.json", space, Fairness("sex"))
    file = tmp_path_factory.mktemp("explorer") / "report.html"
    result.save_html(str(file), explorer=True)
    return file


def opened(browser: Browser, folder: Path, ensemble: TreeEnsemble, space: Space) -> None:
    """Show the explorer of a model alone."""
    result = quantify(ensemble, space, Fairness(space.names[0]), engine="box", time_limit=1, workers=1)
    part = explorer_part([result])
    file = folder / "explorer.html"
    file.write_text(f"<!DOCTYPE html><title>explorer</title>{part.html}", encoding="utf-8")
    browser.open(file, width=1280)


def leaves(browser: Browser, rows: Any) -> Any:
    """The leaves that the page chooses for rows of the model's columns."""
    text = json.dumps([[None if np.isnan(v) else v for v in row] for row in rows.tolist()])
    script = f"{text}.map(row => boxqteExplorer.leaves(row.map(v => v === null ? NaN : v)))"
    return np.array(browser.run(script))


def people(seed: int) -> tuple[Any, Any]:
    """Rows with a category, a real number, an integer and missing values, and what to learn from them."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, 6, 2000), rng.normal(size=2000), rng.integers(0, 50, 2000)], axis=1).astype(float)
    labels = (rows[:, 1] + (rows[:, 0] == 3) - rows[:, 2] / 40 + rng.normal(size=2000) / 4 > 0).astype(int)
    rows[rng.random(2000) < 0.1, 1] = np.nan
    return rows, labels


SPACE = Space(
    [
        Attribute.categorical("f0", [0, 1, 2, 3, 4, 5]),
        Attribute.real("f1", -4, 4, missing="0.1"),
        Attribute.integer("f2", 0, 49),
    ]
)


def trained(library: str) -> tuple[Any, Any]:
    """A model of a library, and its own leaf numbers for rows."""
    rows, labels = people(1)
    if library == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        model = xgboost.XGBClassifier(n_estimators=20, max_depth=3).fit(rows, labels)
        return model, lambda found: model.apply(found)
    if library == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm")
        data = lightgbm.Dataset(
            rows, labels, categorical_feature=[0], feature_name=["f0", "f1", "f2"], free_raw_data=False
        )
        booster = lightgbm.train(
            {"objective": "binary", "verbose": -1, "num_leaves": 8, "min_data_per_group": 5}, data, 30
        )
        return booster, lambda found: booster.predict(found, pred_leaf=True)
    forest = pytest.importorskip("sklearn.ensemble").RandomForestClassifier(20, max_depth=4, random_state=0)
    forest.fit(rows, labels)
    return forest, forest.apply


@in_browser
@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "forest"])
def test_the_page_chooses_the_librarys_own_leaves_on_a_thousand_rows(
    browser: Browser, tmp_path: Path, library: str
) -> None:
    model, apply = trained(library)
    ensemble = load_model(model).ensemble
    opened(browser, tmp_path, ensemble, SPACE)
    rows = boundary_rows(ensemble, 400, unseen=library != "forest")
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:1000]]
    assert len(rows) == 1000
    found = leaves(browser, rows)
    assert np.array_equal(found, ensemble.leaves(rows))
    assert np.array_equal(ensemble.node_id[found], np.asarray(apply(rows)))


@in_browser
def test_the_page_chooses_leaves_and_classes_as_we_do_on_odd_models(browser: Browser, tmp_path: Path) -> None:
    rng = random.Random("explorer")
    for i in range(12):
        problem = random_problem(rng, max_pieces=60, max_pairs=2000, eps=False, decision=i % 2 == 1)
        opened(browser, tmp_path, problem.ensemble, problem.space)
        rows = boundary_rows(problem.ensemble, 40)
        assert np.array_equal(leaves(browser, rows), problem.ensemble.leaves(with_group(problem.ensemble, rows)))
        inputs = [random_input(rng, problem.space) for _ in range(30)]
        told = browser.run(f"{json.dumps(inputs)}.map(x => boxqteExplorer.decide(x).top)")
        matrix = np.array(browser.run(columns_script(inputs)), float)
        assert told == problem.ensemble.predict(matrix).tolist(), problem


def with_group(ensemble: TreeEnsemble, rows: Any) -> Any:
    """Where each group has its threshold, rows have its number at their end."""
    grouped = ensemble.decision is not None and ensemble.decision.attribute is not None
    return np.column_stack([rows, np.zeros(len(rows))]) if grouped else rows


def columns_script(inputs: list[list[float | None]]) -> str:
    return f"""{json.dumps(inputs)}.map(x => {{
      const group = JSON.parse(document.getElementById('explorer-data').textContent).attributes.map((a, i) => a.groups &&
        a.groups[x[i] === null ? a.groups.length - 1 : x[i] - (a.low || 0)]).filter(g => g !== undefined);
      return [...boxqteExplorer.rowOf(x).map(v => Number.isNaN(v) ? null : v), ...group];
    }})"""


def random_input(rng: random.Random, space: Space) -> list[float | None]:
    values: list[float | None] = []
    for attribute in space:
        low, high = float(attribute.low), float(attribute.high)
        if attribute.missing is not None and rng.random() < 0.2:
            values.append(None)
        elif attribute.kind == "real":
            values.append(rng.choice([rng.uniform(low, high), low, high, round(rng.uniform(low, high))]))
        elif attribute.kind == "integer":
            values.append(rng.randint(int(low), int(high)))
        else:
            values.append(rng.randrange(len(attribute.values)))
    return values


@in_browser
def test_no_tree_changes_its_leaf_inside_the_bounding_region_and_some_do_just_outside(
    browser: Browser, tmp_path: Path
) -> None:
    ensemble = load_model(trained("xgboost")[0]).ensemble
    opened(browser, tmp_path, ensemble, SPACE)
    rng = random.Random(7)
    for _ in range(20):
        x = random_input(rng, SPACE)
        found = browser.run(f"boxqteExplorer.region({json.dumps(x)})")
        own = ensemble.leaves([[np.nan if v is None else v for v in x]])
        outside = []
        inside = [[some(rng, part) for part in found] for _ in range(20)]
        for i, part in enumerate(found):
            if "low" in part:
                whole, domain = i == 2, SPACE.attributes[i]
                low = part["low"] - 1 if whole else float(np.nextafter(np.float32(part["low"]), np.float32(-9)))
                high = part["high"] + 1 if whole else part["high"] if part["highOpen"] else 9  # x < t: t is outside
                outside += [[*x[:i], v, *x[i + 1 :]] for v in (low, high) if domain.low <= v <= domain.high]
        assert (ensemble.leaves(np.array(inside, float)) == own).all()
        for row in outside:
            assert (ensemble.leaves(np.array([row], float)) != own).any(), (x, row)


def some(rng: random.Random, part: dict[str, Any]) -> float:
    """A value of a part of the region."""
    if "values" in part:
        return rng.choice(part["values"])
    if "low" not in part:
        return float("nan")
    if float(part["low"]).is_integer() and float(part["high"]).is_integer() and not part["highOpen"]:
        return rng.randint(int(part["low"]), int(part["high"]))
    return float(np.float32(rng.uniform(part["low"], part["high"])))


@in_browser
def test_a_strip_turns_where_the_class_does(browser: Browser, tmp_path: Path) -> None:
    ensemble = load_model(trained("lightgbm")[0]).ensemble
    opened(browser, tmp_path, ensemble, SPACE)
    rng = random.Random(8)
    for _ in range(5):
        x = random_input(rng, SPACE)
        for i, attribute in enumerate(SPACE):
            parts = browser.run(f"boxqteExplorer.strip({json.dumps(x)}, {i}).map(p => ({{...p, sum: 0}}))")
            for part in parts:
                values = [part["value"]]
                if attribute.kind == "real":
                    values = [rng.uniform(part["from"], part["to"]) for _ in range(5)]
                elif attribute.kind == "integer":
                    values = list(range(int(part["from"]), int(part["to"]) + 1))
                rows = np.array([[*x[:i], v, *x[i + 1 :]] for v in values], float)
                assert (ensemble.predict(rows) == part["top"]).all()


@in_browser
def test_an_input_that_a_rule_forbids_is_said_to_be(browser: Browser, tmp_path: Path) -> None:
    space = SPACE.with_rules(["not (f2 < 10 and f0 in [1, 2])", "f1 <= 2.5"])
    ensemble = load_model(trained("forest")[0]).ensemble
    opened(browser, tmp_path, ensemble, space)
    rng = random.Random(9)
    inputs = [random_input(rng, space) for _ in range(200)]
    told = browser.run(f"{json.dumps(inputs)}.map(x => (boxqteExplorer.forbids(x) || {{text: null}}).text)")
    exact = [[None if v is None else Fraction(v) for v in x] for x in inputs]
    for x, text in zip(exact, told):
        values = {a.name: v if v is None or a.is_numeric else int(v) for a, v in zip(space, x)}
        assert text == next((rule.text for rule in space.rules if rule.forbids(space, values)), None)
    assert {*told} == {None, *(rule.text for rule in space.rules)}


# --- the page ---------------------------------------------------------------------------------------------------------


@in_browser
def test_it_starts_from_a_counterexample_and_says_so(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    text = browser.run("document.getElementById('explorer-verdict').textContent")
    assert "Another sex turns the class." in text
    other = browser.run("""(() => { const s = document.getElementById('explorer-start'); s.value = '0,1';
      s.dispatchEvent(new Event('change')); return document.getElementById('explorer-verdict').textContent; })()""")
    assert other.split(",")[0] != text.split(",")[0]


@in_browser
def test_controls_move_the_input_and_refuse_what_is_outside(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    told = browser.run("""(() => {
      const number = document.querySelector('#explorer-rows input[type=number]'), out = [];
      const range = number.parentElement.querySelector('input[type=range]');
      for (const value of [number.max, '1e9']) {
        number.value = value; number.dispatchEvent(new Event('input'));
        out.push(range.value, number.getAttribute('aria-invalid'), number.closest('.row').querySelector('.note').textContent);
      }
      return [number.max, ...out];
    })()""")
    most, first, fine, _, still, wrong, note = told
    assert (first, fine, still, wrong) == (most, "false", most, "true")
    assert note.startswith("outside the space")


@in_browser
@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_everybody_can_use_it(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(OVERFLOW) == []
    assert browser.run("[...document.querySelectorAll('.explorer input, .explorer select')].every(e => "
                       "e.labels.length || e.getAttribute('aria-label'))")  # fmt: skip
    assert browser.run(CONTRAST) == []
    package = pytest.importorskip("axe_core_python", reason="axe-core-python (extra 'test') is not installed")
    browser.run(Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8") + "; 0")
    assert browser.run("axe.run().then(r => r.violations.map(v => v.id + ' ' + v.nodes[0].html.slice(0, 200)))") == []


@in_browser
def test_without_scripts_it_says_so_and_the_report_stands(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280, scripts=False)
    assert browser.run("getComputedStyle(document.getElementById('explorer-body')).display") == "none"
    assert "needs scripts" in browser.run("document.querySelector('.explorer').innerText")
    assert browser.run("document.querySelectorAll('svg.chart, table').length") > 0


@in_browser
def test_no_other_script_runs_in_the_page(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    assert browser.run("typeof boxqteExplorer.leaves") == "function"
    assert (
        browser.run("""(() => { const s = document.createElement('script'); s.textContent = 'window.other = 1';
      document.body.append(s); return typeof window.other; })()""")
        == "undefined"
    )


def test_a_page_of_fifty_trees_is_small_and_fetches_nothing() -> None:
    rows, labels = people(2)
    model = pytest.importorskip("xgboost").XGBClassifier(n_estimators=50, max_depth=3).fit(rows, labels)
    text = quantify(model, SPACE, Fairness("f0"), time_limit=1).to_html(explorer=True, time_limit=1)
    assert len(text.encode()) < 1_000_000
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text


def test_a_name_cannot_leave_its_place_in_the_page() -> None:
    loans, first = loan_ensemble(), next(iter(loan_space()))
    odd = "</script><!--"
    model = replace(loans, feature_names=tuple(odd if name == first.name else name for name in loans.feature_names))
    space = Space([replace(a, name=odd, columns=(odd,)) if a.name == first.name else a for a in loan_space()])
    part = explorer_part([quantify(model, space, Fairness("race"))])
    assert part.html.count("</script") == 2
    assert "<!--" not in part.html


def test_it_is_for_two_classes() -> None:
    problem = random_class_problem(3, max_pieces=60, max_pairs=2000)
    with pytest.raises(ReportError, match="explorer: for models with two classes, this one has"):
        quantify(*problem, time_limit=1).to_html(explorer=True)


def test_the_command_wants_a_report_to_put_it_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantify", "m.json", "--space", "s.json", "--sensitive", "sex", "--explorer"]) == 2
    assert "--explorer: is a part of the report; expected --html REPORT.html too" in capsys.readouterr().err
