"""Certificates: what the engine writes is proved by the checker, and nothing else is."""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import random
import tokenize
from pathlib import Path

import pytest

import boxqte.certify as checker
from boxqte import Attribute, Fairness, Space, quantify
from boxqte.certify import Rejected, certify
from boxqte.cli.main import main
from boxqte.engines.protocol import Status
from boxqte.errors import CertificateError, CheckpointError
from boxqte.examples import loan_ensemble, loan_space
from tests import resume_child
from tests.strategies import random_problem

SOURCE = Path(checker.__file__)


def written(problem, file: Path, **how):
    return quantify(*problem, certificate=file, workers=how.pop("workers", 1), **how)


def agrees(result, verdict) -> bool:
    own = tuple(float(getattr(result.decided, kind)) for kind in ("fair", "unfair", "low"))
    return own == (verdict.fair, verdict.unfair, verdict.low) and verdict.open_boxes == result.details["open_boxes"]


def check_random_problem(seed: int, file: Path, **limits) -> None:
    rng = random.Random(seed)
    problem = random_problem(rng, eps=False, **limits)
    options = {"finish_limit": rng.choice([8, 8, 30, 8000])}
    result = written(problem, file, options=options, node_limit=rng.choice([None, None, 1, 3, 6]))
    verdict = certify(file, problem.ensemble, space=problem.space, workers=1)
    assert agrees(result, verdict)
    assert verdict.measure == result.decided.measure()


@pytest.mark.parametrize("block", range(5))
def test_certificates_of_random_problems_prove_exactly_the_bounds_of_the_engine(tmp_path, block):
    for seed in range(20 * block, 20 * block + 20):
        check_random_problem(seed, tmp_path / "certificate", max_pieces=3000, max_trees=8)


@pytest.mark.parametrize("block", range(3))
def test_certificates_of_random_problems_with_a_decision_rule(tmp_path, block):
    for seed in range(20 * block, 20 * block + 20):
        check_random_problem(seed, tmp_path / "certificate", max_pieces=1000, max_trees=8, decision=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_certificates_of_larger_random_problems_with_a_decision_rule(tmp_path, block):
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        check_random_problem(seed, tmp_path / "certificate", max_pieces=10_000, max_trees=10, decision=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_certificates_of_larger_random_problems(tmp_path, block):
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        check_random_problem(seed, tmp_path / "certificate", max_pieces=30_000, max_trees=14, max_attributes=6)


@pytest.fixture(scope="module")
def medium(tmp_path_factory):
    """A certificate with some hundred splits, and what it proves."""
    file = tmp_path_factory.mktemp("medium") / "certificate"
    problem = (resume_child.ensemble(12), resume_child.space(), Fairness("a0"))
    return problem, written(problem, file, options={"finish_limit": 500}, workers=2), file


def test_workers_of_the_engine_and_of_the_checker_do_not_matter(medium):
    problem, result, file = medium
    assert result.converged
    assert result.details["finished"] > 100
    for workers in (1, 2):
        verdict = certify(file, problem[0], workers=workers)
        assert agrees(result, verdict)
    assert verdict.boxes >= result.details["finished"]


def test_a_stopped_run_is_certified_with_its_open_boxes(tmp_path):
    file = tmp_path / "certificate"
    problem = (resume_child.ensemble(), resume_child.space(), Fairness("a0"))
    result = written(problem, file, node_limit=700)
    assert result.status is Status.NODES
    verdict = certify(file, problem[0], workers=1)
    assert verdict.open_boxes > 0
    assert 0 < verdict.fair + verdict.unfair < 1
    assert agrees(result, verdict)


def test_a_resumed_run_is_certified_as_a_whole(tmp_path):
    file, state = tmp_path / "certificate", tmp_path / "state"
    problem = (resume_child.ensemble(12), resume_child.space(), Fairness("a0"))
    options = {"finish_limit": 500}
    for limit in (50, 200, 700):
        stopped = written(problem, file, node_limit=limit, checkpoint=state, options=options)
        assert not stopped.converged
        assert agrees(stopped, certify(file, problem[0], workers=1))
    with open(file, "ab") as lost:  # written after the last checkpoint, before the process died
        lost.write(b"half a line")
    result = written(problem, file, checkpoint=state, options=options)
    assert result.converged
    assert agrees(result, certify(file, problem[0], workers=1))
    with pytest.raises(CheckpointError, match="of a run with certificate"):
        quantify(*problem, checkpoint=state)
    file.write_bytes(b"")
    with pytest.raises(CertificateError, match="shorter than its checkpoint says"):
        written(problem, file, checkpoint=state, options=options)


# --- mutations --------------------------------------------------------------------------------------------------------


def lines_of(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().splitlines()


def sealed(lines: list[str]) -> bytes:
    """A forged certificate whose checksums are right."""
    body = "".join(f"{line}\n" for line in lines[:-1]).encode()
    last = json.loads(lines[-1]) | {"sha256": hashlib.sha256(body).hexdigest()}
    return gzip.compress(body + f"{json.dumps(last)}\n".encode(), 1)


def moved(number: float, rng: random.Random) -> float:
    """Another number, further away than the checker's tolerance of 2**-40 of the mass of a box."""
    return number + rng.choice([-1, 1]) * (number or 1.0) * 10.0 ** -rng.uniform(0, 8)


def mutated_token(token: str, tokens: list[str], rng: random.Random, n_cuts: int) -> str:
    if token.isdecimal() and rng.random() < 0.7:
        return str(rng.choice([c for c in range(n_cuts + 1) if c != int(token)]))
    if token[0] in "cb" and len(token) > 1 and rng.random() < 0.7:
        parts = token[1:].split(",")
        at = rng.randrange(len(parts))
        parts[at] = repr(moved(float(parts[at]), rng))
        return token[0] + ",".join(parts)
    if token[0] == "o" and rng.random() < 0.5:
        return f"o{int(token[1:]) + rng.choice([-1, 1, 1000])}"
    return rng.choice(
        [other for other in ("f", "u", "o99999", "c0", "c1", "b0", "0", "x", "c", "cnan", "") if other != token]
    )


def mutant(lines: list[str], rng: random.Random) -> tuple[list[str], str]:
    """One field changed: of the question, of a cut, of a line of the search, or of the sums; or a line is lost."""
    out = list(lines)
    searching = [i for i, line in enumerate(lines) if line[0].isdecimal()]
    cuts = [i for i, line in enumerate(lines) if line[0] == "["]
    what = rng.choice(["search"] * 5 + ["name", "cut", "cut", "sums", "question", "lose", "twice", "swap"])
    at = rng.choice(searching)
    words = lines[at].split()
    if what == "search":
        i = rng.randrange(1, len(words))
        words[i] = mutated_token(words[i], words, rng, len(cuts))
        out[at] = " ".join(words)
    elif what == "name":
        out[at] = " ".join([str(int(words[0]) + rng.choice([-1, 1, 5])), *words[1:]])
    elif what == "cut":
        at = rng.choice(cuts)
        axis, held, missing = json.loads(lines[at])
        field = rng.randrange(3)
        if field == 0:
            axis += rng.choice([-1, 1])
        elif field == 1 and held and isinstance(held[0], list):
            held[0][rng.randrange(4)] += rng.choice([-1, 1])
        elif field == 1:
            held = [*held, rng.randrange(5)] if rng.random() < 0.5 else held[1:]
        else:
            missing = 1 - missing
        out[at] = json.dumps([axis, held, missing])
    elif what == "sums":
        last = json.loads(lines[-1])
        kind = rng.choice(["fair", "unfair", "low"])
        last[kind] = rng.choice([moved(last[kind], rng), None, str(last[kind]), 1.0 - last[kind]])
        out[-1] = json.dumps(last)
    elif what == "question":
        head = json.loads(lines[0])
        at_field = rng.choice(["format", "model", "question", "space", "property"])
        if at_field == "space":
            attribute = rng.choice(head["space"]["attributes"])
            attribute[rng.choice(["low", "high"])] += 1
        elif at_field == "property":
            head["property"] |= rng.choice(
                [{"sensitive": ["a1"]}, {"kappa": 0.4}, {"tie": "paper"}, {"epsilon_rate": 0.1}]
            )
        else:
            head[at_field] = head[at_field][::-1]
        out[0] = json.dumps(head)
    elif what == "lose":
        del out[rng.choice(searching + cuts)]
    elif what == "twice":
        out.insert(at, lines[at])
    else:
        i, j = rng.sample(range(1, len(words)), 2) if len(words) > 2 else (0, 0)
        words[i], words[j] = words[j], words[i]
        out[at] = " ".join(words)
    return out, what


def check_mutants(medium, tmp_path: Path, n: int, seed: int) -> None:
    problem, _, file = medium
    lines = lines_of(file)
    truth = certify(file, problem[0], workers=1)
    rng = random.Random(seed)
    forged = tmp_path / "forged"
    survived = []
    tried = 0
    while tried < n:
        changed, what = mutant(lines, rng)
        if changed == lines:
            continue
        tried += 1
        forged.write_bytes(sealed(changed))
        try:
            verdict = certify(forged, problem[0], space=problem[1], workers=1)
        except CertificateError:
            continue
        # It proves something: then it must be the same statement, by another (true) proof.
        assert verdict.asked == truth.asked
        assert (verdict.fair, verdict.unfair, verdict.low, verdict.open_boxes) == (
            truth.fair, truth.unfair, truth.low, truth.open_boxes), what  # fmt: skip
        survived.append(what)
    # For instance two neighbours that are swapped, with the same claim.
    assert len(survived) <= n // 20, survived


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A certificate that is checked in a moment."""
    file = tmp_path_factory.mktemp("small") / "certificate"
    space = Space([Attribute.integer(f"a{i}", 0, 23) for i in range(9)])
    problem = (resume_child.ensemble(7), space, Fairness("a0"))
    return problem, written(problem, file, options={"finish_limit": 60}), file


def test_changed_certificates_are_rejected_though_their_checksums_fit(small, tmp_path):
    assert len(lines_of(small[2])) > 10
    check_mutants(small, tmp_path, 150, seed=1)


@pytest.mark.slow
def test_a_thousand_changed_certificates_are_rejected(small, tmp_path):
    check_mutants(small, tmp_path, 1000, seed=2)


def test_any_changed_byte_is_noticed(small, tmp_path):
    problem, _, file = small
    whole = file.read_bytes()
    rng = random.Random(3)
    forged = tmp_path / "forged"
    bad = [whole[: rng.randrange(len(whole))] for _ in range(15)] + [b"", b"hello", whole + b"x", gzip.compress(b"")]
    for _ in range(60):
        garbled = bytearray(whole)
        at = rng.randrange(10, len(whole))  # the first ten are gzip's own: a time, a system
        garbled[at] ^= 1 << rng.randrange(8)
        bad.append(bytes(garbled))
    for content in bad:
        forged.write_bytes(content)
        with pytest.raises(CertificateError) as caught:
            certify(forged, problem[0], workers=1)
        assert "\n" not in str(caught.value)


def test_a_changed_claim_without_a_new_checksum_is_named(small, tmp_path):
    lines = lines_of(small[2])
    forged = tmp_path / "forged"
    lines[-1] = lines[-1].replace('"sha256": "', '"sha256": "0')
    forged.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    with pytest.raises(Rejected, match="the checksum does not fit"):
        certify(forged, small[0][0], workers=1)


def test_another_model_or_space_is_rejected_by_name(small):
    with pytest.raises(Rejected, match="is about model"):
        certify(small[2], loan_ensemble(), workers=1)
    with pytest.raises(Rejected, match="another space"):
        certify(small[2], small[0][0], space=loan_space(), workers=1)


# --- who can, and how -------------------------------------------------------------------------------------------------


def test_what_cannot_be_certified_is_refused_by_name(tmp_path):
    question = (loan_ensemble(), loan_space())
    with pytest.raises(
        CertificateError, match="engine 'exhaustive' writes no certificate; certificates: engines auto, box"
    ):
        quantify(*question, Fairness("race"), engine="exhaustive", certificate=tmp_path / "c")
    with pytest.raises(CertificateError, match="epsilon = 0 only, but 'income' has a tolerance"):
        quantify(*question, Fairness("race", 0.1), certificate=tmp_path / "c")
    with pytest.raises(CertificateError, match="No such file or directory"):
        quantify(*question, Fairness("race"), certificate=tmp_path / "none" / "c")


def files_in(folder: Path) -> tuple[str, str, str]:
    """The files of a model and its space, and the name of one for a certificate."""
    xgboost, numpy = pytest.importorskip("xgboost"), pytest.importorskip("numpy")
    rng = numpy.random.default_rng(1)
    X = rng.integers(0, 10, (300, 4)).astype(float)
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 30).astype(int)
    model, space, file = (str(folder / name) for name in ("model.json", "space.json", "certificate"))
    xgboost.XGBClassifier(n_estimators=8, max_depth=3).fit(X, y).get_booster().save_model(model)
    attributes = [Attribute.integer(f"f{i}", 0, 9).to_json() for i in range(4)]
    Path(space).write_text(json.dumps({"attributes": attributes}))
    return model, space, file


def test_the_command_proves_rejects_and_refuses(tmp_path, capsys):
    model, space, file = files_in(tmp_path)
    assert main(["quantify", model, "--space", space, "--sensitive", "f0", "--certificate", file, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["certify", file, model, "--space", space, "--workers", "1"]) == 0
    assert "proved      fairness" in capsys.readouterr().out
    assert main(["certify", file, model, "--workers", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["open_boxes"] == 0
    lines = lines_of(Path(file))
    last = json.loads(lines[-1])
    Path(file).write_bytes(sealed([*lines[:-1], json.dumps(last | {"unfair": last["unfair"] / 2})]))
    assert main(["certify", file, model, "--workers", "1"]) == 1
    assert "rejected" in capsys.readouterr().out
    assert main(["certify", str(tmp_path / "none"), model, "--workers", "1"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_checker_shares_nothing_with_the_engines_and_is_short():
    sources = [path.read_text() for path in sorted(SOURCE.parent.glob("*.py"))]
    assert sum(map(lines_of_code, sources)) <= 630
    tree = ast.Module([node for source in sources for node in ast.parse(source).body], [])
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} | {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    ours = {name for name in imported if name and name.startswith("boxqte")}
    readers = {
        "boxqte.models.categories",
        "boxqte.models.decision",
        "boxqte.models.ensemble",
        "boxqte.models.importers",
        "boxqte.space.attributes",
        "boxqte.space.space",
    }
    assert ours == {"boxqte.errors", "boxqte.certify.checker", "boxqte.certify.question", *readers}


def lines_of_code(source: str) -> int:
    """Without documentation, comments and empty lines."""
    tree, documentation = ast.parse(source), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            documentation |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {line for t in tokens if t.type not in silent for line in range(t.start[0], t.end[0] + 1)}
    return len(code - documentation)
