"""The paper's configurations: 25 of Table 2, 15 of Table 3, 10 of Table 4, each with a name to select it by.

The paper's attribute 'gender' is called sex here, as in the data. Its Tables 3 and 4 say 'age' where Table 2 says 'race'
for the same rows of COMPAS and LSAC; they are race here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.paper.datasets import DATASETS

from boxqte.errors import PropertyError

if TYPE_CHECKING:
    from boxqte.questions.properties import Property

SENSITIVE = {
    "adult": ("age", "race", "sex"),
    "bank": ("age",),
    "compas": ("race", "sex"),
    "credit": ("age", "sex"),
    "lsac": ("race", "sex"),
}


@dataclass(frozen=True)
class Configuration:
    """A data set and what is asked of the model; `sensitive` is None for robustness."""

    dataset: str
    sensitive: str | None
    epsilon_rate: str
    kappa: str = "0.5"

    @property
    def subject(self) -> str:
        """Data set and attribute, such as adult-age or bank-robustness."""
        return f"{self.dataset}-{self.sensitive or 'robustness'}"

    @property
    def name(self) -> str:
        """All of it, such as adult-age-e0.1-k0.7."""
        return f"{self.subject}-e{self.epsilon_rate}-k{self.kappa}"

    def property(self) -> Property:
        """The question as quantify takes it."""
        from boxqte.questions.properties import Fairness, Robustness

        if self.sensitive is None:
            return Robustness(self.epsilon_rate, self.kappa)
        return Fairness(self.sensitive, self.epsilon_rate, self.kappa)


def _fairness(epsilon_rate: str, kappa: str) -> tuple[Configuration, ...]:
    return tuple(Configuration(d, s, epsilon_rate, kappa) for d in DATASETS for s in SENSITIVE[d])


def _robustness(epsilon_rate: str, kappa: str) -> tuple[Configuration, ...]:
    return tuple(Configuration(d, None, epsilon_rate, kappa) for d in DATASETS)


TABLE_2 = (*_fairness("0", "0.5"), *_fairness("0.1", "0.5"), *_robustness("0.1", "0.5"))
TABLE_3 = (*_fairness("0.1", "0.7"), *_robustness("0.1", "0.7"))
TABLE_4 = _fairness("0", "0.5")


def selected(configurations: Iterable[Configuration], only: Iterable[str]) -> tuple[Configuration, ...]:
    """Those whose name is one of `only`, or begins with one up to a hyphen; all if `only` is empty.

    Examples
    --------
    >>> [c.name for c in selected(TABLE_2, ["bank-age"])]
    ['bank-age-e0-k0.5', 'bank-age-e0.1-k0.5']
    """
    everything, wanted = tuple(configurations), tuple(only)
    for name in wanted:
        if not any(_matches(c, name) for c in everything):
            subjects = dict.fromkeys(c.subject for c in everything)
            raise PropertyError(f"--only: '{name}' is no row of this table; rows are {', '.join(subjects)}")
    return tuple(c for c in everything if not wanted or any(_matches(c, name) for name in wanted))


def _matches(configuration: Configuration, name: str) -> bool:
    return f"{configuration.name}-".startswith(f"{name}-")
