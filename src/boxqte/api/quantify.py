"""`quantify`, and the answer with everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from boxqte.answers import followups, hotspots, samples
from boxqte.answers.checkpoint import EVERY, checked_every
from boxqte.answers.hotspots import Sought
from boxqte.answers.quantify import limits_of, measure
from boxqte.answers.result import Result
from boxqte.answers.stored import read_result
from boxqte.basics.checks import file_path, function, random_numbers, seconds, whole, worker_count
from boxqte.engines import DEFAULT_ENGINE
from boxqte.engines.protocol import Progress
from boxqte.errors import BoxQTEError, CertificateError, CheckpointError, EngineError, ReportError
from boxqte.exact import Number, fraction, plain
from boxqte.models.decision import Threshold
from boxqte.models.importers import load_model
from boxqte.questions.properties import Property, check_property
from boxqte.report.text import measure_text, statistical_text
from boxqte.space.space import Space, read_space

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from boxqte.answers.samples import Sample

NOTEBOOK_SECONDS = 3.0  # for the hot spots that a notebook shows below a result


class Quantification(Result):
    """The answer: which share of the confident inputs is treated fairly (or robustly).

    Attributes
    ----------
    lower, upper
        Bounds on the measure M = 1 - |X_unfair| / |X_kappa|, certain and rounded outward.
    value
        The measure once converged, as a float that is as close to it as `lower` and `upper` are to each other, else
        None; also None where so little is confident that floating-point error leaves the ratio open.
    exact
        The measure as a rational where the engine computes in rationals, else None.
    status
        Why the engine stopped; `Status.CONVERGED` means that every input is decided.
    confident, counterexample
        Bounds on the masses of X_kappa and X_unfair.
    statistical
        Inside the certain bounds, an interval that holds with a stated confidence, if points were drawn; else None.
    rounding_ambiguous
        A bound on the mass of inputs whose verdict could differ in the library because it sums in floating point;
        None if the engine does not compute it.
    remarks
        Sentences about what the number does not say: that no attribute can move, that few inputs are confident, that no
        tree tests a sensitive attribute, that the measure is undefined. Empty for most results.
    """

    @classmethod
    def of(cls, result: Result) -> Self:
        """The same answer, with everything that can be asked of it."""
        return cls(**{f.name: getattr(result, f.name) for f in fields(result)})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The answer in a file that `save` or `boxqte quantify --json` has written.

        It has every number and remark; the model and the regions are not in the file, so that further questions
        (`regions`, `sample`, `restrict`, ...) are refused. A pickle keeps them.

        Examples
        --------
        >>> import boxqte, tempfile
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"), engine="exhaustive")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.save(f"{folder}/result.json")
        ...     boxqte.Quantification.load(f"{folder}/result.json").exact
        Fraction(352, 505)
        """
        return cls.of(read_result(file_path(path, "path", ReportError)))

    def regions(
        self,
        top: int | None = 20,
        *,
        merge: bool = True,
        pure: bool | None = None,
        flip: bool = True,
        time_limit: float | None = None,
    ) -> pd.DataFrame:
        """Where the counterexamples are: disjoint regions as readable rules, the largest first.

        Parameters
        ----------
        top
            How many regions; None is all of them.
        merge
            Join neighbouring regions that differ in one attribute and have about the same density.
        pure
            Split the heaviest regions until they consist of counterexamples only (epsilon = 0), and list their parts;
            by default where the search has no more regions than are asked for.
        flip
            Also compute which way the class flips; takes a search of the regions shown.
        time_limit
            Seconds for each search that this needs; by default as in the run.

        Returns
        -------
        pandas.DataFrame
            `rule` (as `restrict` reads it), `mass` of its counterexamples and their `share` of all counterexamples (both
            certain lower bounds, reached but for rounding if the search is complete), the `density` (share of the
            region's mass that is counterexamples), `flip`, and the condition on each attribute.
            In `attrs`: `counterexample_mass` and `counterexample_upper` (certain bounds on all of them; the first is what
            was found), `regions` (how many there are), `listed` (the mass in the table), `elsewhere` (mass that is kept
            in no region), `complete` (whether all counterexamples were found), `flips_complete` (False: a limit has
            ended a search for the flips, whose shares are then ranges).

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> print(result.regions().loc[0, "rule"])
        income < 600 and age >= 50
        """
        n = None if top is None else whole(top, "top")
        return followups.regions(self, n, merge=merge, pure=pure, flip=flip, time_limit=seconds(time_limit))

    def hotspots(
        self,
        conditions: int = 3,
        top: int = 10,
        *,
        lift: Number = 2,
        values: int = 3,
        time_limit: float | None = None,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """Where most of the counterexamples are, in a few short rules that may overlap; `regions` lists all, in long ones.

        The rules are found by a beam search on drawn counterexamples, one after the other, each for what those before it
        leave. Every number shown is then counted: certain bounds, rounded outward.

        Parameters
        ----------
        conditions
            At most so many conditions in a rule.
        top
            At most so many rules.
        lift
            How hot a rule must be: counterexamples are at least so many times as frequent in it as in the whole (or where
            they are too frequent for that, inputs that are none so many times as rare).
        values
            At most so many values in a condition's list; of a longer one the values that are not in it, if these are few.
        time_limit
            Seconds for the counting; by default as in the run. Where it ends the search, bounds are apart.
        random_state
            A seed for the draws that rules are chosen by.

        Returns
        -------
        pandas.DataFrame
            The rule that adds most first: `rule` (as `restrict` reads it), `mass` (its share of all inputs), and certain
            bounds on the share of its inputs that are counterexamples (`density_lower`, `density_upper`), on how many times
            that is the share of the whole (`lift_...`), on its share of all counterexamples (`share_...`), and on the share
            of them that this rule and those above it hold together (`covered_...`). Where certain bounds are far apart,
            also intervals from random draws (`density_statistical_lower`, ...), which hold all together with
            `attrs["confidence"]`. In `attrs` also: `counterexample_lower` and `counterexample_upper` (bounds on all of
            them), `lift` (what was required), `converged`, and `tree`: the rules with each level one condition, as a list
            of nodes from the root down.

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> found = result.hotspots()
        >>> found.loc[0, "rule"], float(round(found.loc[0, "covered_lower"], 3))
        ('age >= 50 and income < 600', 1.0)
        """
        sought = sought_hotspots(conditions, top, lift, values)
        seed = whole(random_state, "random_state", 0)
        return hotspots.hotspots(self, sought, time_limit=seconds(time_limit), random_state=seed)

    def profile(self, attribute: str, *, time_limit: float | None = None) -> pd.DataFrame:
        """Counterexamples by value or interval of an attribute, as certain bounds.

        Returns
        -------
        pandas.DataFrame
            One row for each set of values that the model cannot tell apart: `value`, its `mass`, bounds on the mass of
            its counterexamples (`lower`, `upper`), on their share of all counterexamples (`share_lower`, `share_upper`;
            NaN if there are none), and on the counterexamples per mass (`density_lower`, `density_upper`; NaN without
            mass). Rounded outward; they agree but for rounding unless a limit ended a search (`attrs["converged"]`).
        """
        return followups.profile(self, attribute, time_limit=seconds(time_limit))

    def pairs(self, *, time_limit: float | None = None) -> pd.DataFrame:
        """From which sensitive value to which: a matrix of masses.

        Row s, column s': the mass of the counterexamples x with value s that have an x' with value s', a certain lower
        bound. An x may have several x', so that a row can sum to more than the counterexamples in it. The certain upper
        bounds are in `attrs["upper"]`, a list of rows; both agree but for rounding if `attrs["converged"]`.
        """
        return followups.pairs(self, time_limit=seconds(time_limit))

    def restrict(self, condition: str, *, time_limit: float | None = None) -> Quantification:
        """The measure on a part of the space: only x that satisfy the condition count. x' may be any input.

        Parameters
        ----------
        condition
            Such as `"age >= 60 and sex == 'f'"`; see `boxqte.space.conditions.parse_condition`.

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> result.restrict("income < 300").value < result.value
        True
        """
        return Quantification.of(followups.restrict(self, condition, time_limit=seconds(time_limit)))

    def sample(
        self,
        n: int,
        *,
        random_state: int | np.random.Generator | None = None,
        replay: bool = True,
        distinct: bool = False,
        workers: int | None = None,
    ) -> Sample:
        """Counterexamples drawn by the space's mass, each with an x' that makes it one.

        Parameters
        ----------
        n
            How many pairs.
        random_state
            A seed or a numpy Generator; the same seed gives the same pairs, however many threads there are.
        replay
            Ask the model's own library about every pair, where it is installed; pairs on which it disagrees stay, and are
            listed in `disagreements`.
        distinct
            No pair twice. Without it the draws are independent, and in a small space pairs repeat.
        workers
            Threads; None is one per core.

        Returns
        -------
        boxqte.answers.samples.Sample
            Two tables, `x` and `witness`, in the columns that the model's own `predict` takes.

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> found = result.sample(100, random_state=0)
        >>> len(found), bool((found.x["age"] >= 50).all()), bool((found.x["income"] == found.witness["income"]).all())
        (100, True, True)
        """
        rng, threads = random_numbers(random_state), worker_count(workers)
        return samples.sample(self, whole(n, "n"), random_state=rng, replay=replay, distinct=distinct, workers=threads)

    def blame(
        self,
        data: Any = None,
        label: str | None = None,
        *,
        splits: bool = True,
        time_limit: float | None = None,
        progress: Callable[[str, float | None, Progress], None] | None = None,
    ) -> pd.DataFrame:
        """Which trees and splits are to blame: what each of them alone adds to the unfairness, and what it is good for.

        A tree is blinded if every node of it that tests a sensitive attribute is replaced by the child that more rows of
        `data` reach, or without data, by the child with more mass in the space; a split, if only that node is. The model
        with one tree (or split) blinded is quantified like the model itself.

        Parameters
        ----------
        data
            A table of rows, best those that the model was trained on. Rows outside the space are left out.
        label
            The column of the data with the true classes, for `log_loss`.
        splits
            Ask about every split too, not only about whole trees.
        time_limit
            Seconds for all searches together; by default what the run had, if it had a limit.
        progress
            Called with what is searched, its time limit and a Progress, now and then.

        Returns
        -------
        pandas.DataFrame
            One line a `tree` that tests a sensitive attribute (its `split` is empty, `splits` says how many it has),
            followed by one line a split, with its condition and the library's own number of the `node`. Sorted by the
            counterexample mass that blinding removes: `removed_lower` and `removed_upper` are certain bounds, below 0 where
            blinding adds more than it removes. `measure_lower` and `measure_upper` are bounds on the measure then,
            `log_loss` is how much the loss on the data grows (NaN without a label), `converged` and `status` say whether
            the search is complete. In `attrs` what the model itself has: `measure`, `counterexample`, `log_loss`, how
            many `trees` and `sensitive_trees` there are, the `rows` that were used, and how many searches were not made.

        Examples
        --------
        >>> import boxqte
        >>> from boxqte.examples import loan_ensemble, loan_space
        >>> result = boxqte.quantify(loan_ensemble(), loan_space(), boxqte.Fairness("race"))
        >>> table = result.blame()
        >>> table["tree"].tolist(), bool(table.loc[0, "removed_lower"] > 0.15)
        ([1, 1, 0, 0], True)
        """
        from boxqte.repairing.blame import blame

        watcher = function(progress, "progress")
        return blame(self, data, label, splits=splits, time_limit=seconds(time_limit), progress=watcher)

    def to_html(
        self,
        *,
        command: str = "",
        time_limit: float | None = 60.0,
        explorer: bool = False,
        blame: pd.DataFrame | None = None,
    ) -> str:
        """The report: one self-contained page with hot spots, profiles, flips and examples.

        `time_limit` are the seconds for all searches that it takes; None is no limit. With `explorer` the page has a part
        that needs scripts: the reader chooses an input and sees what the model makes of it (two classes). `blame` is the
        table of `blame`, to be shown as well.
        """
        from boxqte.auditing.gathering import gather
        from boxqte.report.blame import blamed, sentences
        from boxqte.report.explorer import explorer_part
        from boxqte.report.html import result_page

        findings = gather(self, seconds=time_limit)
        if blame is not None:
            findings = replace(findings, blamed=tuple(blamed(blame)), blame=tuple(sentences(blame)))
        return result_page(self, findings, command=command, explorer=explorer_part([self]) if explorer else None)

    def save_html(
        self,
        path: str,
        *,
        time_limit: float | None = 60.0,
        explorer: bool = False,
        blame: pd.DataFrame | None = None,
    ) -> None:
        """Write the report."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_html(time_limit=time_limit, explorer=explorer, blame=blame))

    def plot_bounds(self, *, ax: Any = None, **style: Any) -> Any:
        """Draw the bounds over time with matplotlib; see `boxqte.report.plots.plot_bounds`."""
        from boxqte.report.plots import plot_bounds

        return plot_bounds(self, ax=ax, **style)

    def plot_profile(self, attribute: str, *, ax: Any = None, time_limit: float | None = None) -> Any:
        """Draw the unfair share by value of an attribute; see `boxqte.report.plots.plot_profile`."""
        from boxqte.report.plots import plot_profile

        return plot_profile(self, self.profile(attribute, time_limit=time_limit), attribute, ax=ax)

    def plot_regions(self, top: int = 10, *, ax: Any = None, time_limit: float | None = None) -> Any:
        """Draw the largest regions and their masses; see `boxqte.report.plots.plot_regions`."""
        from boxqte.report.plots import plot_regions

        return plot_regions(self, self.regions(top, flip=False, time_limit=time_limit), ax=ax)

    def __repr__(self) -> str:
        shown = "; ".join(part for part in (measure_text(self), statistical_text(self)) if part)
        return f"Quantification({self.property}: {shown}; {self.status} in {self.seconds:.3g} s, engine {self.engine})"

    def _repr_html_(self) -> str:
        from boxqte.report.notebook import result_html

        spots = None
        if self.asked is not None and self.converged and self.decided.unfair:
            with suppress(BoxQTEError):  # a question that has none
                spots = self.hotspots(top=5, time_limit=NOTEBOOK_SECONDS)
        return result_html(self, spots)


def sought_hotspots(conditions: int, top: int, lift: Number, values: int) -> Sought:
    """What hot spots are asked for, checked."""
    times = fraction(lift, EngineError, "lift")
    if times <= 1:
        raise EngineError(f"lift: must be above 1, found {plain(times)}")
    return Sought(whole(conditions, "conditions", 1, 8), whole(top, "top", 1, 100), whole(values, "values"), times)


def quantify(
    model: object,
    space: Space | Mapping[str, Any] | str | Path,
    property: Property,
    *,
    engine: str = DEFAULT_ENGINE,
    time_limit: float | None = None,
    gap: float = 0.0,
    require: Number | None = None,
    workers: int | None = None,
    n_jobs: int | None = None,
    memory_limit: int | None = None,
    node_limit: int | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    executor: Any = None,
    allow_pickle: bool = False,
    threshold: Threshold | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = EVERY,
    certificate: str | Path | None = None,
) -> Quantification:
    """Measure which share of the confident inputs is treated fairly (or robustly), with proof.

    Parameters
    ----------
    model
        A fitted model (XGBoost, LightGBM, CatBoost, scikit-learn), the path of a model file, or a TreeEnsemble.
    space
        The input space: a Space (or the `Inference` that it came with), the path of its JSON file, or the JSON object.
    property
        `Fairness(...)` or `Robustness(...)`.
    engine
        The engine's name.
    time_limit
        Seconds after which the engine stops with the bounds it has; None is no limit.
    gap
        Stop once upper - lower is at most this; 0 runs to the exact answer.
    require
        Stop once it is proved that the measure is at least this, or that it is below; None runs on.
    workers
        Threads or processes; None is one per core.
    n_jobs
        The same under scikit-learn's name: -1 is one per core. Give one of the two.
    memory_limit
        Bytes the engine may use; None is half of the machine.
    node_limit
        Stop after this many nodes of the search: a limit that repeats exactly.
    options
        Options of the engine, by name.
    progress
        Called with a Progress now and then.
    executor
        A `dask.distributed.Client`: the search runs in the processes behind it (engines box and auto; docs/cluster.md).
    allow_pickle
        Unpickle scikit-learn files; only for files you trust.
    threshold
        The decision rule, in place of the model's own: 0.3, or {"sex": {"f": 0.4, "m": 0.6}} (`load_model`).
    checkpoint
        A file that keeps the state of the run. If it is there already, the run goes on from it; the file of another
        model, space or property is refused. For the engines auto and box, and two classes.
    checkpoint_every
        Seconds between two writings of the checkpoint.
    certificate
        A file for the proof: `boxqte certify` checks it without the engine. For the engines auto and box,
        two classes and epsilon = 0.

    Returns
    -------
    Result
        The measure with its bounds, status, guarantee and trace.

    Examples
    --------
    >>> from boxqte import Fairness, quantify
    >>> from boxqte.examples import loan_ensemble, loan_space
    >>> result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    >>> result.converged
    True
    """
    check_property(property)
    imported = load_model(model, allow_pickle=allow_pickle, threshold=threshold)
    bound = read_space(space)
    limits = limits_of(
        time_limit, gap=gap, workers=workers, n_jobs=n_jobs, memory_limit=memory_limit, node_limit=node_limit,
        require=require,
    )  # fmt: skip
    every = checked_every(checkpoint_every)
    result = measure(
        imported,
        bound,
        property,
        engine=engine,
        limits=limits,
        options=options,
        progress=function(progress, "progress"),
        cluster=executor,
        checkpoint=None if checkpoint is None else file_path(checkpoint, "checkpoint", CheckpointError),
        checkpoint_every=every,
        certificate=None if certificate is None else file_path(certificate, "certificate", CertificateError),
    )
    return Quantification.of(result)
