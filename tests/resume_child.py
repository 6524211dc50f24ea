"""The run that tests/answers/test_resume.py kills: one question of a few seconds, its state kept in the file that is named.

python tests/resume_child.py CHECKPOINT WORKERS [CERTIFICATE]
"""

from __future__ import annotations

import json
import random
import sys

from boxqte import Attribute, Fairness, Space, quantify
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble

N_ATTRIBUTES, N_VALUES, N_TREES = 9, 24, 26


def ensemble(n_trees: int = N_TREES) -> TreeEnsemble:
    """Trees of depth 3 on random attributes: the same at every call."""
    rng = random.Random(5)
    builder = EnsembleBuilder()
    for _ in range(n_trees):
        builder.add_tree(
            feature=[*(rng.randrange(N_ATTRIBUTES) for _ in range(7)), *[-1] * 8],
            test=[Test.AT_MOST_F64] * 7 + [Test.LEAF] * 8,
            threshold=[*(rng.randrange(N_VALUES - 1) + 0.5 for _ in range(7)), *[0.0] * 8],
            left=[1, 3, 5, 7, 9, 11, 13, *[-1] * 8],
            right=[2, 4, 6, 8, 10, 12, 14, *[-1] * 8],
            value=[*[0.0] * 7, *(rng.uniform(-1, 1) for _ in range(8))],
        )
    names = [f"a{i}" for i in range(N_ATTRIBUTES)]
    return builder.build(library="example", feature_names=names, base=(0.1,), link="sigmoid")


def space() -> Space:
    return Space([Attribute.integer(f"a{i}", 0, N_VALUES - 1) for i in range(N_ATTRIBUTES)])


def main() -> None:
    checkpoint, workers, *certificate = sys.argv[1:]
    quantify(loan_ensemble(), loan_space(), Fairness("race"))  # everything is imported and compiled after this
    print("ready", flush=True)
    result = quantify(
        ensemble(),
        space(),
        Fairness("a0"),
        workers=int(workers),
        checkpoint=checkpoint,
        checkpoint_every=0,
        options={"call_work": 200_000},  # short calls: the state changes often
        **({"certificate": certificate[0]} if certificate else {}),
    )
    masses = [float(result.decided.fair), float(result.decided.unfair), float(result.decided.low)]
    details = {key: result.details[key] for key in ("nodes", "finished")}
    print(json.dumps({"masses": masses, "seconds": result.seconds, "status": str(result.status)} | details))


if __name__ == "__main__":
    main()
