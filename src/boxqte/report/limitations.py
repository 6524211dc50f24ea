"""What an audit cannot say, of all that docs/limits.md lists: the points that apply to it."""

from __future__ import annotations

from collections.abc import Iterator

from boxqte.auditing.audit import Audit

PRODUCT = (
    "The share over the space counts every input that the domains allow, also those that nobody will ever be. It is not the "
    "share of people who are treated fairly; the population and the rows are closer to that."
)
UNSEEN = "No data was given: nothing is said about people, only about inputs. Ask with the data for the population and the rows."
MIXTURE = (
    "The population is a model of the data. What it misses of the data's dependences is stated beside it, and its numbers are "
    "exact for it, not for the people."
)
TRAINING = "If the rows are those that the model was trained on, accuracy and the shares in the rows are better than on new ones."
NOTION = (
    "It is one notion of fairness: does the decision change with the sensitive attribute, all else equal or nearly so? Proxies, "
    "group rates and whether a decision is right are other questions; a model that never reads the attribute is perfectly fair "
    "by this one."
)
OPEN = (
    "Time ended before every input was decided. Certain bounds are proved all the same; statistical intervals come from random "
    "inputs and prove nothing."
)
AROUND = (
    "The model is the model file: code around it, such as rules after the score or features that are computed from others, is "
    "not seen."
)
ROUNDING = (
    "The library adds in floating point. How many inputs that could decide otherwise is stated, as an upper bound."
)
INFERRED = "The space was inferred from the data: values that the data does not have are not in it; reasons are listed with it."
SIMILAR = "Robustness is about small changes within the stated tolerance, and about no others."


def limitations(audit: Audit) -> Iterator[str]:
    """The limitations that apply, each a sentence or two."""
    yield NOTION
    if not audit.space.components:
        yield PRODUCT
    if audit.data is None:
        yield UNSEEN
    if audit.population is not None or audit.space.components:
        yield MIXTURE
    if audit.data is not None:
        yield TRAINING
    if any(not result.converged for result in audit.results):
        yield OPEN
    if audit.inference is not None:
        yield INFERRED
    if any(result.property.kind == "robustness" for result in audit.results):
        yield SIMILAR
    if any(result.rounding_ambiguous or result.input_rounding for result in audit.results):
        yield ROUNDING
    yield AROUND
