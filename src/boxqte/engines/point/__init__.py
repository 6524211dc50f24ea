"""Decide single points exactly: is this x confident, and is it a counterexample? (`decider.PointDecider`)"""

from boxqte.engines.point.decider import FAIR, LOW, UNFAIR, UNKNOWN, PointDecider, Verdicts
from boxqte.questions.grid import AnyGrid

__all__ = ["FAIR", "LOW", "UNFAIR", "UNKNOWN", "PointDecider", "Verdicts", "point_decider"]


def point_decider(grid: AnyGrid, **options: int) -> PointDecider:
    """The decider for the grid, with two classes or more; `options` as PointDecider takes them."""
    from boxqte.engines.point.classes import ClassDecider
    from boxqte.questions.class_grid import ClassGrid

    return (ClassDecider if isinstance(grid, ClassGrid) else PointDecider)(grid, **options)
