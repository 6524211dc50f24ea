"""The loan classifier of the paper (its tree ensemble figure and its SMT appendix), small enough to check by hand."""

from __future__ import annotations

from boxqte.models.ensemble import EnsembleBuilder, Test, TreeEnsemble
from boxqte.space.attributes import Attribute
from boxqte.space.space import Space

_INCOME, _RACE, _AGE = range(3)
_LEAF, _LESS = Test.LEAF, Test.LESS_F32


def loan_ensemble() -> TreeEnsemble:
    """The paper's gradient-boosted loan classifier: three trees over income, race and age.

    The paper's leaf values are decimals; here they are the nearest doubles, and everything computed from them is exact
    about those doubles.

    Examples
    --------
    >>> model = loan_ensemble()
    >>> model.feature_names, model.n_trees, model.n_leaves
    (('income', 'race', 'age'), 3, 9)
    >>> round(float(model.margin([[500, 1, 40]])[0, 0]), 2)  # the paper's example input: sigmoid(2.27), about 0.91
    2.27
    """
    builder = EnsembleBuilder()
    # T1: race < 2 ? (income < 300 ? -0.17 : 0.85) : -0.02
    builder.add_tree(
        feature=[_RACE, _INCOME, 0, 0, 0],
        test=[_LESS, _LESS, _LEAF, _LEAF, _LEAF],
        threshold=[2, 300, 0, 0, 0],
        left=[1, 2, 0, 0, 0],
        right=[4, 3, 0, 0, 0],
        value=[0, 0, -0.17, 0.85, -0.02],
    )
    # T2: income < 600 ? (race < 3 ? 0.7 : 1.62) : (age < 50 ? -0.19 : 1.75)
    builder.add_tree(
        feature=[_INCOME, _RACE, _AGE, 0, 0, 0, 0],
        test=[_LESS, _LESS, _LESS, _LEAF, _LEAF, _LEAF, _LEAF],
        threshold=[600, 3, 50, 0, 0, 0, 0],
        left=[1, 3, 5, 0, 0, 0, 0],
        right=[2, 4, 6, 0, 0, 0, 0],
        value=[0, 0, 0, 0.7, 1.62, -0.19, 1.75],
    )
    # T3: age < 50 ? 0.72 : -1.3
    builder.add_tree(
        feature=[_AGE, 0, 0],
        test=[_LESS, _LEAF, _LEAF],
        threshold=[50, 0, 0],
        left=[1, 0, 0],
        right=[2, 0, 0],
        value=[0, 0.72, -1.3],
    )
    return builder.build(library="example", feature_names=("income", "race", "age"), base=(0,), link="sigmoid")


def loan_space() -> Space:
    """The paper's input space: income in [0, 1000], race one of 0..4, age an integer in 0..100; race is sensitive.

    Examples
    --------
    >>> [(a.name, a.kind) for a in loan_space()]
    [('income', 'real'), ('race', 'categorical'), ('age', 'integer')]
    """
    return Space(
        [
            Attribute.real("income", 0, 1000),
            Attribute.categorical("race", range(5)),
            Attribute.integer("age", 0, 100),
        ],
        sensitive=("race",),
    )
