"""From a live model or a model file to a TreeEnsemble. One file a library; a new library is one file and one line below.

An importer is a module with two functions:

    recognises(source) -> bool                      quick, never imports the library, never reads more than a file's head
    load(source, *, allow_pickle, trees) -> ImportedModel  parses and validates by itself; says exactly why not
                                                    (ModelError)

`source` is a live object or a `pathlib.Path`; `trees` is what the user says of early stopping (rounds.py). Archives
and MLflow folders are opened here, so that an importer sees only its own files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.models.decision import DecisionRule, Threshold, read_decision, read_limit
from boxqte.models.ensemble import TreeEnsemble
from boxqte.models.imported import Asks, ImportedModel
from boxqte.models.importers.archives import is_archive, unpacked
from boxqte.models.importers.looks import ACCEPTED, described
from boxqte.models.importers.mlflow import NAME, inner_file
from boxqte.models.importers.rounds import Trees, read_trees, refuse_rounds
from boxqte.models.importers.structure import ANY_MODEL
from boxqte.models.scores import with_value_threshold

# The order matters only for files whose format two importers could claim; each recognises its own by content.
LIBRARIES = ("xgboost", "lightgbm", "catboost", "onnx", "sklearn")


__all__ = ["Asks", "ImportedModel", "Importer", "decided", "load_model"]


class Importer(Protocol):
    """What a module in this package provides."""

    def recognises(self, source: object) -> bool: ...
    def load(self, source: Any, *, allow_pickle: bool, trees: Trees | None) -> ImportedModel: ...


def load_model(
    source: object,
    *,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
    trees: Trees | str | None = None,
) -> ImportedModel:
    """Read a model: a live object, a path, or a TreeEnsemble itself.

    Parameters
    ----------
    source
        A fitted model of a supported library, the path of a model file (also in gz or zip) or of an MLflow folder, or a
        TreeEnsemble.
    allow_pickle
        Unpickle scikit-learn files. Unpickling runs code from the file: only for files you trust.
    threshold
        The decision rule, in place of the model's own `predict`: class 1 iff p >= 0.3, or with ">0.3" iff p > 0.3; one
        number for each value of an attribute as {"sex": {"f": 0.4, "m": 0.6}} or "sex:f=0.4,m=0.6". Numbers are exact,
        and 0.3 is 3/10, not the float beside it (docs/decision.md). For two classes. For a model that predicts a number,
        a threshold on that number.
    trees
        Which trees count after early stopping: 'all', 'best' (those up to the best iteration), or how many. By default
        those with which the library's own object predicts (docs/models.md).

    Examples
    --------
    >>> from boxqte.examples import loan_ensemble
    >>> load_model(loan_ensemble(), threshold=0.3).ensemble.decision.text()
    'class 1 iff p >= 0.3'
    """
    chosen = read_trees(trees)
    imported = _read(Path(source) if isinstance(source, str) else source, allow_pickle, chosen)
    if isinstance(chosen, int):
        imported = replace(imported, trees_because=f"trees={chosen}")
    if threshold is None:
        return imported
    if not imported.ensemble.predicts_classes:
        limit, exclusive = read_limit(threshold)
        return with_value_threshold(imported, limit, exclusive=exclusive)
    return decided(imported, read_decision(threshold))


def decided(model: ImportedModel, rule: DecisionRule, asks: Asks | None = None) -> ImportedModel:
    """The model with a decision rule. `asks` is the rule as its library computes it, for one that is not per group."""
    if not model.ensemble.is_binary:
        n = model.ensemble.n_outputs
        raise ModelError(f"threshold: {model.source} has {n} classes; a decision threshold is for two classes")
    levels = np.array([float(tau) for _, tau in rule.thresholds])
    compare = np.greater if rule.exclusive else np.greater_equal
    on_margin = rule
    if model.pulled_back is not None:
        each = [model.pulled_back(asks or partial(_asks, compare, level)) for level in levels.tolist()]
        taus = tuple((value, own.thresholds[0][1]) for (value, _), own in zip(rule.thresholds, each))
        on_margin = replace(each[0], thresholds=taus, attribute=rule.attribute, slack=max(own.slack for own in each))
    probability = model.probability

    def native(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        assert probability is not None
        if rule.attribute is None:
            found = (asks or partial(_asks, compare, float(levels[0])))(probability(rows))
        else:
            p = probability(rows[:, :-1])[:, 1]
            found = compare(p, levels[rows[:, -1].astype(np.int64)].astype(p.dtype))
        return np.asarray(found, np.int64)

    ensemble = replace(model.ensemble, decision=on_margin)
    return replace(model, ensemble=ensemble, native=None if probability is None else native)


def _asks(
    compare: Callable[..., npt.NDArray[np.bool_]], level: float, p: npt.NDArray[np.floating]
) -> npt.NDArray[np.bool_]:
    return compare(p[:, 1], level)  # a Python float takes the precision of p, as in the libraries' own comparisons


def _read(source: object, allow_pickle: bool, trees: Trees | None) -> ImportedModel:
    if isinstance(source, ImportedModel):
        refuse_rounds(trees, f"{source.source} is read already")
        return source
    if isinstance(source, TreeEnsemble):
        refuse_rounds(trees, "TreeEnsemble")
        return ImportedModel(source, "TreeEnsemble")
    if isinstance(source, Path):
        if not source.exists():
            raise ModelError(f"{source}: no such file")
        if source.is_dir() and (source / NAME).is_file():
            inside, is_booster = inner_file(source)
            return _read(inside, allow_pickle, trees or ("all" if is_booster else None))
        if not source.is_file():
            raise ModelError(f"{source}: not a file: {described(source) if source.is_dir() else 'a device or a pipe'}")
        if source.stat().st_size == 0:
            raise ModelError(f"{source}: the file is empty")
    for library in LIBRARIES:
        importer = cast(Importer, importlib.import_module(f"boxqte.models.importers.{library}"))
        if importer.recognises(source):
            return importer.load(source, allow_pickle=allow_pickle, trees=trees)
    if isinstance(source, Path):
        if is_archive(source):
            return _unpacked(source, allow_pickle, trees)
        raise ModelError(f"{source}: {described(source)}")
    raise ModelError(
        f"{type(source).__module__}.{type(source).__qualname__} object: not a model this version reads; {ACCEPTED}; "
        f"{ANY_MODEL}"
    )


def _unpacked(source: Path, allow_pickle: bool, trees: Trees | None) -> ImportedModel:
    """The model in an archive; messages and results name the archive, not the temporary file."""
    with unpacked(source) as inside:
        if is_archive(inside):
            raise ModelError(
                f"{source}: holds an archive in an archive ({inside.name}); unpack it and give the model file"
            )
        try:
            return replace(_read(inside, allow_pickle, trees), source=str(source))
        except ModelError as error:
            raise ModelError(str(error).replace(str(inside), f"{source} ({inside.name})")) from None
