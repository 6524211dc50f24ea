"""Decide single points exactly: is this x confident, and is it a counterexample? (`decider.PointDecider`)"""

from boxqte.engines.point.decider import FAIR, LOW, UNFAIR, UNKNOWN, PointDecider, Verdicts

__all__ = ["FAIR", "LOW", "UNFAIR", "UNKNOWN", "PointDecider", "Verdicts"]
