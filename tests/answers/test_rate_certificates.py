"""Certificates of group rates: the checker proves every group's bounds, and nothing that was changed."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from boxqte import Attribute, GroupRates, Space, group_rates
from boxqte.answers import rate_search
from boxqte.certify import Rejected, Verdict, certify, certify_parts
from boxqte.cli.main import main
from boxqte.errors import CertificateError
from boxqte.exact import down, up
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.combined import combinations
from boxqte.questions.properties import Fairness
from tests import resume_child
from tests.answers.test_certificates import files_in, lines_of, mutant, sealed
from tests.strategies import random_problem


def agree(rates: GroupRates, parts: list[Verdict]) -> bool:
    """Whether the certificate proves the bounds of all groups, digit by digit; groups may share a part."""
    proved = {(down(low), up(high)) for low, high in (part.rate for part in parts)}  # type: ignore[misc]
    return proved == {(group.rate.lower, group.rate.upper) for group in rates.groups}


def check_random_problem(seed: int, file: Path, **how: Any) -> int:
    """How many groups were proved."""
    rng = random.Random(seed)
    problem = random_problem(rng, eps=False, kappa=False, **how)
    space = problem.space
    names = [a.name for a in space]
    sensitive = rng.sample(names, rng.choice([1, 1, min(2, len(names))]))
    limit = rng.choice([None, None, 1, 3, 6])
    rates = group_rates(problem.ensemble, space, sensitive, certificate=file, workers=1, node_limit=limit)
    parts = certify_parts(file, problem.ensemble, space, 1)
    assert agree(rates, parts)
    grid = build_grid(problem.ensemble, space, Fairness(sensitive))
    assert len(parts) == sum(combination.mass > 0 for combination in combinations(grid))
    assert sum(part.mass for part in parts) == 1
    return len(parts)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes are counted only when they are small, so that there are splits to be proved."""
    monkeypatch.setitem(rate_search.RECORDED, "finish_limit", 8)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("decision", [False, True])
def test_every_group_of_random_problems_is_proved_as_the_engine_states_it(tmp_path: Path, decision: bool) -> None:
    for seed in range(25):
        check_random_problem(seed, tmp_path / "c", max_pieces=600, max_trees=6, decision=decision)


@pytest.mark.slow
@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("block", range(6))
def test_more_than_five_hundred_certificates_are_accepted(tmp_path: Path, block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        check_random_problem(seed, tmp_path / "c", max_pieces=5000, max_trees=10, decision=bool(block % 2))


# --- forgeries --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Space, Path]:
    """A certificate of a few groups with many splits each."""
    file = tmp_path_factory.mktemp("rates") / "certificate"
    space = Space([Attribute.categorical("a0", [0, 8, 16])] + [Attribute.integer(f"a{i}", 0, 23) for i in range(1, 9)])
    ensemble = resume_child.ensemble(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rate_search.RECORDED, "finish_limit", 60)
        rates = group_rates(ensemble, space, "a0", certificate=file, workers=1)
    assert rates.converged
    assert agree(rates, certify_parts(file, ensemble, space, 1))
    return ensemble, space, file


def parts_of(file: Path) -> list[list[str]]:
    """The lines of each part."""
    parts: list[list[str]] = [[]]
    for line in lines_of(file):
        parts[-1].append(line)
        if len(parts[-1]) > 1 and line[0] == "{":
            parts.append([])
    return parts[:-1]


def asking(lines: list[str], **other: Any) -> list[str]:
    """The part with another question, whose digest is right."""
    head = json.loads(lines[0])
    about = {name: head[name] for name in ("model", "space", "property")} | other
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    return [json.dumps({"format": head["format"], **about, "question": digest}), *lines[1:]]


def forged_group(lines: list[str], rng: random.Random, n_values: int) -> list[str]:
    """The same proof said of another group."""
    asked = json.loads(lines[0])["property"]
    axis, held, missing = asked["group"][0]
    other = rng.choice(
        [[axis, [(held[0] + 1) % n_values], missing], [axis, [0, 1], missing], [axis, [], 0], [axis, held, 1],
         [axis + 1, held, missing], [-1, held, missing], [axis, [n_values], missing], [axis, [0, 1, 2], missing]]
    )  # fmt: skip
    change: dict[str, Any] = rng.choice(
        [{"group": [other]}, {"group": [other]}, {"group": []}, {"group": [*asked["group"]] * 2}, {"sensitive": ["a1"]},
         {"kappa": 0.7}, {"kind": "fairness"}, {"partner_kappa": 0.8}, {"epsilon_rate": 0.1}, {"sensitive": []}]
    )  # fmt: skip
    return asking(lines, property=asked | change)


def forgery(parts: list[list[str]], rng: random.Random) -> tuple[list[list[str]], str]:
    """One thing changed: in a part, of its group, or the parts themselves."""
    out = [list(part) for part in parts]
    at = rng.randrange(len(out))
    what = rng.choice(["inside"] * 6 + ["group", "group", "space", "lose", "twice", "exchange"])
    if what == "inside":
        out[at], what = mutant(out[at], rng)
    elif what == "group":
        out[at] = forged_group(out[at], rng, 3)
    elif what == "space":
        space = json.loads(out[at][0])["space"]
        space["attributes"][rng.randrange(1, 9)]["high"] += 1
        chosen = [at] if rng.random() < 0.5 else range(len(out))
        for i in chosen:
            out[i] = asking(out[i], space=space)
    elif what == "lose":
        del out[at]
    elif what == "twice":
        out.append(out[at])
    else:  # the proof of one group, said of another
        other = (at + 1) % len(out)
        out[at] = [out[at][0], *out[other][1:]]
    return out, what


def check_forgeries(small: tuple[Any, Space, Path], tmp_path: Path, n: int, seed: int) -> None:
    ensemble, space, file = small
    parts, truth = parts_of(file), certify_parts(file, ensemble, space, 1)
    rng, forged, survived = random.Random(seed), tmp_path / "forged", []
    tried = 0
    while tried < n:
        changed, what = forgery(parts, rng)
        if changed == parts:
            continue
        tried += 1
        forged.write_bytes(b"".join(sealed(part) for part in changed))
        try:
            proved = certify_parts(forged, ensemble, space, 1)
        except CertificateError:
            continue
        # It proves something: then it must be the same statement, by another (true) proof.
        assert proved == truth, what
        survived.append(what)
    assert len(survived) <= n // 20, survived


def test_forged_certificates_are_rejected_though_their_checksums_fit(
    small: tuple[Any, Space, Path], tmp_path: Path
) -> None:
    check_forgeries(small, tmp_path, 80, seed=1)


@pytest.mark.slow
def test_a_thousand_forged_certificates_are_rejected(small: tuple[Any, Space, Path], tmp_path: Path) -> None:
    check_forgeries(small, tmp_path, 1000, seed=2)


def test_another_model_or_space_is_rejected_by_name(small: tuple[Any, Space, Path]) -> None:
    with pytest.raises(Rejected, match="is about model"):
        certify_parts(small[2], loan_ensemble(), None, 1)
    with pytest.raises(Rejected, match="another space"):
        certify_parts(small[2], small[0], loan_space(), 1)


def test_a_group_whose_values_the_model_tells_apart_is_rejected(small: tuple[Any, Space, Path], tmp_path: Path) -> None:
    parts = parts_of(small[2])
    asked = json.loads(parts[0][0])["property"]
    (tmp_path / "c").write_bytes(sealed(asking(parts[0], property=asked | {"group": [[0, [0, 1, 2], 0]]})))
    with pytest.raises(Rejected, match="values that the model tells apart"):
        certify_parts(tmp_path / "c", small[0], small[1], 1)


def test_a_certificate_must_have_all_groups(small: tuple[Any, Space, Path], tmp_path: Path) -> None:
    parts = parts_of(small[2])
    (tmp_path / "c").write_bytes(b"".join(sealed(part) for part in parts[1:]))
    with pytest.raises(Rejected, match="not all groups or products of one question, each once"):
        certify_parts(tmp_path / "c", small[0], small[1], 1)


def test_several_processes_prove_the_same(small: tuple[Any, Space, Path]) -> None:
    assert certify_parts(small[2], small[0], None, 2) == certify_parts(small[2], small[0], None, 1)


def test_a_question_that_the_checker_does_not_know_is_rejected(tmp_path: Path) -> None:
    from boxqte import quantify

    quantify(loan_ensemble(), loan_space(), Fairness("race"), certificate=tmp_path / "c")
    lines = lines_of(tmp_path / "c")
    asked = json.loads(lines[0])["property"]
    for change in ({"kind": "monotonicity"}, {"partner_kappa": 0.8}, {"max_change": {"age": 5}}):
        (tmp_path / "d").write_bytes(sealed(asking(lines, property=asked | change)))
        with pytest.raises(Rejected, match="is no question for a certificate"):
            certify(tmp_path / "d", loan_ensemble(), workers=1)


def test_groups_that_were_not_asked_any_more_are_open_in_the_certificate(tmp_path: Path) -> None:
    space = Space([Attribute.integer(f"a{i}", 0, 23) for i in range(9)])
    rates = group_rates(resume_child.ensemble(7), space, "a0", certificate=tmp_path / "c", require_ratio=1)
    assert str(rates.status) == "requirement decided"
    parts = certify_parts(tmp_path / "c", resume_child.ensemble(7), space, 1)
    assert agree(rates, parts)
    assert (parts[-1].rate, parts[-1].boxes, parts[-1].open_boxes) == ((0, 1), 0, 1)


def test_the_command_proves_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, space, file = files_in(tmp_path)
    asked = ["rates", model, "--space", space, "--sensitive", "f0", "--certificate", file, "--quiet"]
    assert main([*asked, "--json", str(tmp_path / "rates.json")]) == 0
    found = json.loads((tmp_path / "rates.json").read_text())
    capsys.readouterr()
    assert main(["certify", file, model, "--space", space, "--workers", "1"]) == 0
    assert "proved      group rate by f0" in capsys.readouterr().out
    assert main(["certify", file, model, "--workers", "1", "--json"]) == 0
    proved = json.loads(capsys.readouterr().out)
    assert [group["rate"] for group in proved["groups"]] == [group["rate"] for group in found["groups"]]
    assert main([*asked[:-3], "--certificate", str(tmp_path / "none" / "c")]) == 2
    assert "there is no directory" in capsys.readouterr().err
