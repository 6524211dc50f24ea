"""TreeEnsemble: one flat, immutable model in which every node keeps its own test exactly as its library means it.

Nothing here is a tolerance. `x < t` on float32 inputs (XGBoost), `x <= t` on float32 inputs (scikit-learn, CatBoost),
`x <= t` on float64 inputs (LightGBM, HistGradientBoosting) and category sets are different tests and stay different
data. The numpy methods (`leaf_ids`, `margin`, `predict`) exist to be compared with the library, not to be fast.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from boxqte.errors import ModelError
from boxqte.exact import above_log
from boxqte.models.category_names import StoredNames
from boxqte.models.decision import DecisionRule

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]

Link = Literal["sigmoid", "mean", "softmax", "identity", "exp"]
Tie = Literal["negative", "positive"]
Decides = Literal["margin", "probability"]

# LightGBM's kZeroThreshold is the float literal 1e-35f held in a double, a little more than 1e-35; |x| at most this
# counts as zero.
ZERO_BAND = float(np.float32(1e-35))


class Test(IntEnum):
    """What a node asks. True goes to `left`."""

    __test__ = False  # not a pytest class

    LEAF = 0
    LESS_F32 = 1  # float32(x) < t                 XGBoost
    AT_MOST_F32 = 2  # float32(x) <= t, t float64  scikit-learn trees, CatBoost
    AT_MOST_F64 = 3  # x <= t                      LightGBM, HistGradientBoosting
    IN_SET = 4  # int(x) is in the node's set of codes, which are integers from 0 on


class Missing(IntEnum):
    """What a node does with NaN (and, where a library takes zeros for missing values, with zero)."""

    DEFAULT = 0  # NaN follows default_left
    AS_ZERO = 1  # NaN is read as 0.0 and then tested      LightGBM, use_missing=False
    WITH_ZERO = 2  # NaN and every |x| <= ZERO_BAND follow default_left    LightGBM, zero_as_missing
    ZERO_EXACT = 3  # NaN and x == 0 follow default_left    XGBoost on sparse matrices, which do not store zeros


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeEnsemble:
    """A sum of decision trees with a link, as flat arrays over all nodes of all trees.

    `left` and `right` are absolute node indices (-1 at leaves). A node's test sends true to `left`.
    `value[node]` is read at leaves only; its width is 1 for a tree that feeds one output (`tree_output`), or
    `n_outputs` for trees whose leaves carry one value an output (then `tree_output` is -1).
    `node_id` is the library's own number for the node, so that leaf ids can be compared with the library's.

    Margin, S being base + sum of leaf values. `mean`: scale * S / n_trees - 1/2 (one output) or scale * S / n_trees
    (several outputs). All others: scale * S.

    A model without classes predicts a number: the margin (`identity`), its exponential (`exp`) or its sigmoid.

    Category sets are defined on integers, the only values a category's code has: x is a member if it is one of the
    codes. On other numbers `leaf_ids` cuts the fraction off, as LightGBM does; XGBoost casts to float32 before that and
    takes negative fractions for no category, so spaces with such codes are refused (`grid.build_grid`).
    """

    library: str
    feature_names: tuple[str, ...]
    roots: IntArray
    feature: IntArray
    test: npt.NDArray[np.uint8]
    threshold: FloatArray
    left: IntArray
    right: IntArray
    default_left: npt.NDArray[np.bool_]
    missing: npt.NDArray[np.uint8]
    set_start: IntArray
    set_stop: IntArray
    set_codes: npt.NDArray[np.int64]
    value: FloatArray
    tree_output: IntArray
    node_id: IntArray
    base: tuple[Fraction, ...]
    link: Link
    classes: tuple[Any, ...] = (0, 1)
    tie: Tie = "negative"
    sum_dtype: Literal["float32", "float64"] = "float64"
    """The precision in which the library adds leaf values (and computes probabilities)."""
    scale: Fraction = Fraction(1)
    """What the library multiplies the sum by: LightGBM's sigmoid parameter, 1/n for an average, CatBoost's scale."""
    further_rounding: Fraction = Fraction(0)
    """What the library rounds beyond the sum and the link, as a bound on the margin: weights and means of a wrapper."""
    decides_on: Decides = "margin"
    """Whether `predict` asks margin > 0 or p > 1/2 (several outputs: for the largest margin or probability). The same
    question, but for the rounding of p."""
    categories: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    """Per feature the user's own category values in code order, where the model file carries them."""
    known_codes: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Per feature the codes seen in training, where the library treats all others as missing (HistGradientBoosting)."""
    stored_names: Mapping[int, StoredNames] = field(default_factory=dict)
    """Per feature what the model has of its category values, where it needs a table to be sure of them (XGBoost)."""
    decision: DecisionRule | None = None
    """The decision rule, where it is not the library's own `predict`. With a threshold for each value of an attribute, a
    row has one more column at its end: the number of its threshold."""
    leaf_error: float = 0.0
    """How far the leaf values of a mean may lie from the fractions that the library's probabilities are made of."""

    def __post_init__(self) -> None:
        check_ensemble(self)
        for array in self._arrays().values():
            array.setflags(write=False)

    @property
    def n_trees(self) -> int:
        return len(self.roots)

    @property
    def n_nodes(self) -> int:
        return len(self.feature)

    @property
    def n_leaves(self) -> int:
        return int(np.count_nonzero(self.test == Test.LEAF))

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    @property
    def n_outputs(self) -> int:
        return len(self.base)

    @property
    def is_binary(self) -> bool:
        return self.n_outputs == 1

    @property
    def predicts_classes(self) -> bool:
        """Whether the model decides between classes; otherwise it predicts a number."""
        return bool(self.classes)

    def require_classes(self) -> None:
        """The one refusal of class questions about a model that predicts a number."""
        if not self.predicts_classes:
            raise ModelError(
                "the model predicts a number, not a class; give a decision threshold on the value (threshold=...), then "
                "class 1 is a value of at least that"
            )

    @property
    def factor(self) -> Fraction:
        """What base + sum of leaf values is multiplied by: `scale`, divided by n_trees for a mean."""
        return self.scale / self.n_trees if self.link == "mean" else self.scale

    def own_name(self, column: str) -> str:
        """What the library calls a column of a table: LightGBM writes _ for every blank."""
        return column.replace(" ", "_") if self.library == "lightgbm" else column

    def depth(self) -> int:
        """The largest number of tests on a path."""
        deepest, level = 0, self.roots[self.test[self.roots] != Test.LEAF]
        while len(level):
            deepest += 1
            below = np.concatenate([self.left[level], self.right[level]])
            level = below[self.test[below] != Test.LEAF]
        return deepest

    def set_of(self, node: int) -> frozenset[int]:
        """The codes that an IN_SET node sends left."""
        return frozenset(self.set_codes[self.set_start[node] : self.set_stop[node]].tolist())

    def fingerprint(self) -> str:
        """SHA-256 over everything that decides a prediction; two ensembles with equal fingerprints are the same model."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        head = (self.feature_names, self.base, self.scale, self.link, self.tie, self.sum_dtype, self.decides_on,
                tuple(map(str, self.classes)), *([self.further_rounding] if self.further_rounding else []))  # fmt: skip
        maps = (sorted((k, tuple(map(str, v))) for k, v in self.categories.items()),
                sorted((k, tuple(sorted(v))) for k, v in self.known_codes.items()))  # fmt: skip
        digest.update(repr((head, maps)).encode())
        if self.decision is not None:
            digest.update(self.decision.key().encode())
        for name, array in self._arrays().items():
            digest.update(f"{name}{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def goes_left(self, node: int, x: FloatArray) -> npt.NDArray[np.bool_]:
        """The node's test on the column values x (float64, NaN is missing), as the library computes it."""
        test, missing = self.test[node], self.missing[node]
        absent = np.isnan(x)
        if missing == Missing.AS_ZERO:
            x, absent = np.where(absent, 0.0, x), np.zeros(len(x), bool)
        elif missing == Missing.WITH_ZERO:
            absent = absent | (np.abs(x) <= ZERO_BAND)
        elif missing == Missing.ZERO_EXACT:
            absent = absent | (x == 0)
        if test != Test.IN_SET:
            left = holds(self.test[node], self.threshold[node], x)
        else:
            codes = np.where(np.isfinite(x) & (np.abs(x) < 2.0**62), x, -1.0).astype(np.int64)
            left = np.isin(codes, self.set_codes[self.set_start[node] : self.set_stop[node]])
            known = self.known_codes.get(int(self.feature[node]))
            if known is not None:
                absent = absent | ~np.isin(codes, np.fromiter(known, np.int64))
        return np.where(absent, self.default_left[node], left)

    def leaves(self, X: npt.ArrayLike) -> IntArray:
        """The absolute node index of the leaf that each row reaches in each tree (rows x trees)."""
        rows = np.asarray(X, np.float64)
        if self.decision is not None and self.decision.attribute is not None:
            rows = rows[:, :-1]
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ModelError(f"rows have shape {rows.shape}, the model takes {self.n_features} columns")
        reached = np.empty((len(rows), self.n_trees), np.int32)
        for t, root in enumerate(self.roots):
            stack = [(int(root), np.arange(len(rows)))]
            while stack:
                node, at = stack.pop()
                if self.test[node] == Test.LEAF:
                    reached[at, t] = node
                elif len(at):
                    goes = self.goes_left(node, rows[at, self.feature[node]])
                    stack += [(int(self.left[node]), at[goes]), (int(self.right[node]), at[~goes])]
        return reached

    def leaf_ids(self, X: npt.ArrayLike) -> IntArray:
        """The library's own leaf numbers (rows x trees)."""
        ids: IntArray = self.node_id[self.leaves(X)]
        return ids

    def exact_margin(self, X: npt.ArrayLike) -> list[tuple[Fraction, ...]]:
        """The margin of every row and output without rounding; slow, for checks and for counterexamples."""
        shift = Fraction(1, 2) if self.link == "mean" and self.is_binary else Fraction(0)
        exact: dict[int, tuple[Fraction, ...]] = {}
        margins = []
        for row in self.leaves(X).tolist():
            total = list(self.base)
            for t, leaf in enumerate(row):
                if leaf not in exact:
                    exact[leaf] = tuple(Fraction(v) for v in self.value[leaf].tolist())
                if self.tree_output[t] >= 0:
                    total[self.tree_output[t]] += exact[leaf][0]
                else:
                    total = [a + b for a, b in zip(total, exact[leaf])]
            margins.append(tuple(v * self.factor - shift for v in total))
        return margins

    def margin(self, X: npt.ArrayLike) -> FloatArray:
        """The margin in float64 (rows x outputs): close to the library's, exact only up to float64 summation."""
        reached = self.leaves(X)
        total = np.tile(np.array([float(b) for b in self.base]), (len(reached), 1))
        for t in range(self.n_trees):
            values = self.value[reached[:, t]]
            if self.tree_output[t] >= 0:
                total[:, self.tree_output[t]] += values[:, 0]
            else:
                total += values
        if self.link == "mean" and self.scale == 1:
            return total / self.n_trees - (0.5 if self.is_binary else 0.0)
        return total * float(self.factor) - (0.5 if self.link == "mean" and self.is_binary else 0.0)

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Class indices, from exact margins and the model's own tie rule (several outputs: the first largest)."""
        self.require_classes()
        margins = self.exact_margin(X)
        if not self.is_binary:
            return np.array([row.index(max(row)) for row in margins], np.int64)
        rule, inclusive = self.decision, self.tie == "positive"
        levels = [(Fraction(1), Fraction(0))]
        group = [0] * len(margins)
        if rule is not None:
            inclusive = not rule.exclusive
            levels = [rule.level(i, self.link) for i in range(len(rule.thresholds))]
            if rule.attribute is not None:
                group = np.asarray(X, np.float64)[:, -1].astype(np.int64).tolist()
        sides = [above_log(row[0] - levels[g][1], levels[g][0]) for row, g in zip(margins, group)]
        return np.array([side > 0 or (side == 0 and inclusive) for side in sides], np.int64)

    @property
    def unit_roundoff(self) -> Fraction:
        return Fraction(1, 2**24) if self.sum_dtype == "float32" else Fraction(1, 2**53)

    def rounding_error(self) -> Fraction:
        """A bound e, for any input: the library's class is that of some margin within e of the exact one.

        With u the unit roundoff of `sum_dtype` (2**-24, 2**-53), it adds up what the library itself rounds:

        - The sum. n + 1 terms, added in any order, err by at most n*u / (1 - n*u) times the sum of |terms|. A factor on
          each term (dart) and two behind the sum (average, sigmoid's parameter) are three more such steps.
        - A mean of trees. `predict` compares the means of both classes with each other, so a leaf counts with the larger
          of p and 1 - p; p itself was rounded to float64 on import, where the two did not add up to 1.
        - The link, where the class is decided on p > 1/2. 1 / (1 + exp(-F)) is more than 1/2 from F = 4u on, if exp errs
          by at most one unit in the last place; below that p may be exactly 1/2, although F > 0.
        - What a wrapper around the trees rounds (`further_rounding`).
        - A threshold of the decision rule (`DecisionRule.rounding_error`).
        """
        return self._rounding_error

    @cached_property
    def _rounding_error(self) -> Fraction:
        u = self.unit_roundoff
        size = np.abs(self.value).max(axis=1)
        if self.link == "mean" and self.is_binary:
            size = np.maximum(size, np.abs(1.0 - self.value[:, 0]))
        per_tree = np.zeros(self.n_trees)
        leaf = self.test == Test.LEAF
        np.maximum.at(per_tree, self.tree_of_node()[leaf], size[leaf])
        largest = sum(map(Fraction, per_tree.tolist()), max(map(abs, self.base)))
        steps = (self.n_trees + 3) * u
        bound = self.factor * largest * steps / (1 - steps) + self.further_rounding
        if self.link == "mean":
            bound += u
        if self.decides_on == "probability":
            bound += 4 * u
        if self.decision is not None:
            bound += self.decision.rounding_error(self.link, u) + Fraction(self.leaf_error)
        return bound

    def tree_of_node(self) -> IntArray:
        """The index of the tree that each node belongs to."""
        owner = np.full(self.n_nodes, -1, np.int32)
        level, trees = self.roots, np.arange(self.n_trees, dtype=np.int32)
        while len(level):
            owner[level] = trees
            inner = self.test[level] != Test.LEAF
            level, trees = level[inner], trees[inner]
            level, trees = np.concatenate([self.left[level], self.right[level]]), np.concatenate([trees, trees])
        return owner

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        names = ("roots", "feature", "test", "threshold", "left", "right", "default_left", "missing", "set_start",
                 "set_stop", "set_codes", "value", "tree_output", "node_id")  # fmt: skip
        return {name: getattr(self, name) for name in names}


def holds(test: npt.ArrayLike, threshold: npt.ArrayLike, x: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Threshold tests on present values, as their libraries compute them; the three arguments are broadcast.

    Examples
    --------
    >>> holds(Test.AT_MOST_F64, 0.1, [0.1, 0.2]).tolist(), holds(Test.AT_MOST_F32, 0.1, 0.1).tolist()
    ([True, False], False)
    """
    wide, limit = np.asarray(x, np.float64), np.asarray(threshold, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32).astype(np.float64)
    kind = np.asarray(test)
    result: npt.NDArray[np.bool_] = np.where(
        kind == Test.LESS_F32, narrow < limit, np.where(kind == Test.AT_MOST_F32, narrow, wide) <= limit
    )
    return result


def check_ensemble(model: TreeEnsemble) -> None:
    """Refuse arrays that are not a forest: the last line of defence behind the importers' own, better-named checks."""
    n = model.n_nodes
    if model.n_trees == 0:
        raise ModelError("the model has no trees")
    for name, array in model._arrays().items():
        if name not in ("roots", "tree_output", "set_codes") and len(array) != n:
            raise ModelError(f"model array '{name}' has {len(array)} entries for {n} nodes")
    if model.value.ndim != 2 or model.value.shape[1] not in (1, model.n_outputs):
        raise ModelError(f"leaf values have shape {model.value.shape} for {model.n_outputs} outputs")
    leaf = model.test == Test.LEAF
    if model.test.max(initial=0) > max(Test) or model.missing.max(initial=0) > max(Missing):
        raise ModelError("a node's test or missing rule is unknown")
    inner = np.flatnonzero(~leaf)
    if not np.isfinite(model.value[leaf]).all():
        raise ModelError("a leaf value is NaN or infinite")
    if not np.isfinite(model.threshold[inner][model.test[inner] != Test.IN_SET]).all():
        raise ModelError("a threshold is NaN or infinite")
    less = model.threshold[model.test == Test.LESS_F32]
    with np.errstate(over="ignore"):
        wide = less[less.astype(np.float32) != less]
    if len(wide):
        raise ModelError(f"a threshold of x < t on float32 inputs is no float32 itself: {float(wide[0])}")
    start, stop = model.set_start[inner], model.set_stop[inner]
    if ((start < 0) | (start > stop) | (stop > len(model.set_codes))).any() or (model.set_codes < 0).any():
        raise ModelError("a category set lies outside the model's codes, or has a negative code")
    if ((model.feature[inner] < 0) | (model.feature[inner] >= model.n_features)).any():
        raise ModelError(f"a node tests a feature outside 0..{model.n_features - 1}")
    parents = np.zeros(n, np.int64)
    for side in (model.left, model.right):
        child = side[inner]
        if ((child < 0) | (child >= n)).any():
            raise ModelError("a child index is out of range")
        np.add.at(parents, child, 1)
    if ((model.roots < 0) | (model.roots >= n)).any():
        raise ModelError("a root index is out of range")
    np.add.at(parents, model.roots, 1)
    if (parents != 1).any() or (model.tree_of_node() < 0).any():
        raise ModelError("the nodes do not form trees: a node has no parent, several parents, or lies on a cycle")
    if len(model.tree_output) != model.n_trees or (model.tree_output >= model.n_outputs).any():
        raise ModelError("tree_output does not name one output a tree")
    if model.scale <= 0:
        raise ModelError(f"the margin's scale is {model.scale}; it must be positive")
    if not model.classes and (model.link in ("mean", "softmax") or model.n_outputs != 1):
        raise ModelError(f"the model has no classes, but link '{model.link}' and {model.n_outputs} outputs")
    if model.decision is not None:
        if not model.is_binary:
            raise ModelError(
                f"threshold: the model has {model.n_outputs} classes; a decision threshold is for two classes"
            )
        model.decision.check(model.link, model.unit_roundoff, model.library)


class EnsembleBuilder:
    """Collects trees node by node; importers use it so that none of them handles the flat arrays itself.

    A tree is added as parallel sequences in the library's own numbering (0..n-1, root first unless `root` says so);
    the library's number of a node stays available as its `node_id`.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (
            "feature", "test", "threshold", "left", "right", "default_left", "missing", "set_start", "set_stop",
            "value", "node_id")}  # fmt: skip
        self._roots: list[int] = []
        self._outputs: list[int] = []
        self._codes: list[int] = []
        self._sets: dict[tuple[int, ...], tuple[int, int]] = {}
        self._size = 0

    def add_tree(
        self,
        *,
        feature: npt.ArrayLike,
        test: npt.ArrayLike,
        threshold: npt.ArrayLike,
        left: npt.ArrayLike,
        right: npt.ArrayLike,
        value: npt.ArrayLike,
        default_left: npt.ArrayLike = False,
        missing: npt.ArrayLike = Missing.DEFAULT,
        sets: Mapping[int, Sequence[int]] | None = None,
        node_id: npt.ArrayLike | None = None,
        root: npt.ArrayLike = 0,
        output: npt.ArrayLike = 0,
    ) -> None:
        """Add one tree, or several: then `root` and `output` have an entry for each.

        Scalars are broadcast; `sets[node]` are the codes an IN_SET node sends left. A set that is given as a tuple is
        stored once, however many nodes have it.
        """
        tests = np.asarray(test, np.uint8)
        n = len(tests)
        start, stop = np.zeros(n, np.int32), np.zeros(n, np.int32)
        for node, codes in (sets or {}).items():
            shared = self._sets.get(codes) if isinstance(codes, tuple) else None
            if shared is None:
                shared = len(self._codes), len(self._codes) + len(set(codes))
                self._codes.extend(sorted(set(codes)))
                if isinstance(codes, tuple):
                    self._sets[codes] = shared
            start[node], stop[node] = shared
        inner = tests != Test.LEAF
        values = np.asarray(value, np.float64).reshape(n, -1)
        columns: dict[str, npt.ArrayLike] = {
            "feature": np.where(inner, np.asarray(feature, np.int32), -1),
            "test": tests,
            "threshold": np.where(inner, np.asarray(threshold, np.float64), 0.0),
            "left": np.where(inner, np.asarray(left, np.int64) + self._size, -1),
            "right": np.where(inner, np.asarray(right, np.int64) + self._size, -1),
            "default_left": np.broadcast_to(np.asarray(default_left, bool), n) & inner,
            "missing": np.where(inner, np.broadcast_to(np.asarray(missing, np.uint8), n), 0),
            "set_start": start,
            "set_stop": stop,
            "value": np.where(inner[:, None], 0.0, values),
            "node_id": np.arange(n) if node_id is None else node_id,
        }
        for name, column in columns.items():
            self._parts[name].append(np.asarray(column))
        self._roots.extend((np.atleast_1d(root) + self._size).tolist())
        self._outputs.extend(np.atleast_1d(output).tolist())
        self._size += n

    def build(
        self,
        *,
        library: str,
        feature_names: Sequence[str],
        base: Sequence[Fraction | float],
        link: Link,
        classes: Sequence[Any] = (0, 1),
        tie: Tie = "negative",
        sum_dtype: Literal["float32", "float64"] = "float64",
        scale: Fraction = Fraction(1),
        decides_on: Decides = "margin",
        further_rounding: Fraction = Fraction(0),
        categories: Mapping[int, tuple[Any, ...]] | None = None,
        known_codes: Mapping[int, frozenset[int]] | None = None,
        stored_names: Mapping[int, StoredNames] | None = None,
    ) -> TreeEnsemble:
        """The finished, checked ensemble."""
        if not self._roots:
            raise ModelError("the model has no trees")
        if len(set(feature_names)) != len(feature_names):
            twice = next(name for name, count in Counter(feature_names).items() if count > 1)
            raise ModelError(f"feature name '{twice}' occurs twice in the model; names must be distinct")
        types = {"feature": np.int32, "test": np.uint8, "threshold": np.float64, "left": np.int32, "right": np.int32,
                 "default_left": np.bool_, "missing": np.uint8, "set_start": np.int32, "set_stop": np.int32,
                 "value": np.float64, "node_id": np.int32}  # fmt: skip
        arrays: dict[str, Any] = {
            name: np.concatenate(parts).astype(types[name]) for name, parts in self._parts.items()
        }
        return TreeEnsemble(
            library=library,
            feature_names=tuple(feature_names),
            roots=np.array(self._roots, np.int32),
            tree_output=np.array(self._outputs, np.int32),
            set_codes=np.array(self._codes, np.int64),
            base=tuple(Fraction(b) for b in base),
            link=link,
            classes=tuple(classes),
            tie=tie,
            sum_dtype=sum_dtype,
            scale=Fraction(scale),
            decides_on=decides_on,
            further_rounding=further_rounding,
            categories=dict(categories or {}),
            known_codes=dict(known_codes or {}),
            stored_names=dict(stored_names or {}),
            **arrays,
        )
