"""Kinds of pipelines, and how to compare one with what is read of it, through the pipeline's own methods alone.

`READ` and `REFUSED` are the rows of docs/models.md: the tests in tests/models/test_pipelines.py run over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import Pipeline as SamplingPipeline
from imblearn.under_sampling import RandomUnderSampler
from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_selection import (
    RFE,
    RFECV,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
)
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from boxqte.models.ensemble import TreeEnsemble

NUMBERS = ["age", "gain", "dose"]


def people(n: int = 300, seed: int = 0, classes: int = 2) -> tuple[pd.DataFrame, np.ndarray]:
    """A small table: two columns with missing values, many zeros, positive reals, texts, integers."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.08, np.nan, rng.integers(17, 60, n)),
            "gain": np.where(rng.random(n) < 0.5, 0.0, rng.normal(size=n) * 10),
            "dose": np.exp(rng.normal(size=n)) * 3,
            "job": pd.Series(
                rng.choice(["clerk", "farmer", "none", "teacher"], n, p=[0.5, 0.3, 0.1, 0.1]), dtype=object
            ),
            "sex": rng.choice(["f", "m"], n),
            "level": rng.choice([1, 5, 9], n),
            "empty": np.nan,
            "town": rng.choice(["?", "north", "south"], n),
        }
    )
    frame["job"] = frame["job"].where(rng.random(n) > 0.06, np.nan)
    score = frame["age"].fillna(70) / 15 + 1.5 * (frame["gain"] > 0) + (frame["job"] == "clerk") - (frame["sex"] == "m")
    score += np.log(frame["dose"]) * (frame["level"] != 5) + 0.3 * rng.normal(size=n)
    return frame, np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


FINAL: dict[str, Callable[[], Any]] = {
    "RandomForest": lambda: RandomForestClassifier(3, max_depth=4, random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=12, min_samples_leaf=5),
    "XGBoost": lambda: XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1),
    "LightGBM": lambda: LGBMClassifier(n_estimators=3, num_leaves=12, min_child_samples=5, n_jobs=1, verbose=-1),
    "CatBoost": lambda: CatBoostClassifier(
        iterations=3, depth=3, thread_count=1, verbose=False, allow_writing_files=False
    ),
    "DecisionTree": lambda: DecisionTreeClassifier(max_depth=4, random_state=0),
    "GradientBoosting": lambda: GradientBoostingClassifier(n_estimators=5, random_state=0),
    "ExtraTrees": lambda: ExtraTreesClassifier(3, max_depth=4, random_state=0),
}
NO_MISSING = ("GradientBoosting",)  # refuse missing values


@dataclass(frozen=True)
class Kind:
    """A pipeline by its steps before the model: what is in it, and on which columns."""

    name: str
    before: Callable[[], Any]
    columns: Sequence[str] = (*NUMBERS, "sex")
    low: float = -np.inf
    """The least number that the steps take."""
    classes: int = 2
    refused: str = ""
    """What the refusal says; empty for a kind that is read."""
    final: str = ""
    """The model behind the steps, where not any will do."""
    slow: bool = False
    sampled: bool = False
    """Whether it is imbalanced-learn's pipeline."""

    def fitted(self, final: str, n: int = 300) -> Any:
        frame, y = people(n, classes=self.classes)
        cls = SamplingPipeline if self.sampled else Pipeline
        before = self.before()
        steps = before if isinstance(before, list) else [("before", before)]
        return cls([*steps, ("model", FINAL[final]())]).fit(frame[list(self.columns)], y)


def on(step: Any, columns: Sequence[str] = NUMBERS, *others: Any, **options: Any) -> ColumnTransformer:
    """A step for some columns beside an ordinal encoder for the sex."""
    return ColumnTransformer([("step", step, list(columns)), ("sex", OrdinalEncoder(), ["sex"]), *others], **options)


def number(name: str, step: Callable[[], Any], columns: Sequence[str] = NUMBERS, **options: Any) -> Kind:
    return Kind(name, lambda: on(step(), columns), (*columns, "sex"), **options)


def category(name: str, step: Callable[[], Any], columns: Sequence[str] = ("job", "level"), **options: Any) -> Kind:
    return Kind(name, lambda: on(step(), columns, ("age", "passthrough", ["age"])), (*columns, "sex", "age"), **options)


def selecting(name: str, step: Callable[[], Any], slow: bool = False) -> Kind:
    return Kind(name, lambda: [("columns", on(SimpleImputer())), ("select", step())], slow=slow)


def bins(encode: str, n: int = 4) -> Any:
    discretizer = KBinsDiscretizer(n, encode=encode, strategy="quantile", quantile_method="averaged_inverted_cdf")
    return make_pipeline(SimpleImputer(), discretizer)


def function(name: str, **options: Any) -> Kind:
    before = options.pop("before", ())
    return number(
        f"FunctionTransformer(numpy.{name})",
        lambda: make_pipeline(*before, FunctionTransformer(getattr(np, name))),
        options.pop("columns", ["dose"]),
        **options,
    )


TINY = float(np.finfo(float).tiny)
READ: list[Kind] = [
    number("StandardScaler", StandardScaler),
    number("StandardScaler(with_mean=False)", lambda: StandardScaler(with_mean=False)),
    number("MinMaxScaler", MinMaxScaler),
    number("MinMaxScaler(clip=True)", lambda: MinMaxScaler((0.25, 0.75), clip=True)),
    number("MaxAbsScaler", MaxAbsScaler),
    number("RobustScaler", RobustScaler),
    number("QuantileTransformer", lambda: QuantileTransformer(n_quantiles=40)),
    number(
        "QuantileTransformer(output_distribution='normal')",
        lambda: QuantileTransformer(n_quantiles=40, output_distribution="normal"),
    ),
    number("PowerTransformer('yeo-johnson')", PowerTransformer),
    number("PowerTransformer('box-cox')", lambda: PowerTransformer(method="box-cox"), ["dose"], low=TINY),
    number("KBinsDiscretizer('ordinal')", lambda: bins("ordinal")),
    number("KBinsDiscretizer('onehot')", lambda: bins("onehot"), final="XGBoost"),
    number("KBinsDiscretizer('onehot-dense')", lambda: bins("onehot-dense")),
    number("Binarizer", lambda: make_pipeline(SimpleImputer(), Binarizer(threshold=2.5))),
    number("SimpleImputer('mean')", SimpleImputer),
    number("SimpleImputer('median', add_indicator=True)", lambda: SimpleImputer(strategy="median", add_indicator=True)),
    number("SimpleImputer('constant')", lambda: SimpleImputer(strategy="constant", fill_value=-1)),
    number(
        "SimpleImputer(missing_values=0)", lambda: SimpleImputer(missing_values=0.0, strategy="most_frequent"), ["gain"]
    ),
    number("MissingIndicator", lambda: FeatureUnion([("is", MissingIndicator()), ("value", "passthrough")])),
    function("positive", slow=True),
    function("negative", slow=True),
    function("absolute", columns=["gain"]),
    function("square", columns=["gain"], slow=True),
    function("floor", slow=True),
    function("ceil", slow=True),
    function("trunc", columns=["gain"], slow=True),
    function("rint", slow=True),
    function("sign", columns=["gain"], slow=True),
    function("deg2rad", slow=True),
    function("sqrt", columns=["gain"]),
    function("exp", columns=["gain"]),
    function("exp2", slow=True),
    function("expm1", slow=True),
    function("cbrt", columns=["gain", "dose"]),
    function("log", low=TINY),
    function("log2", low=TINY, slow=True),
    function("log10", low=TINY, slow=True),
    function("log1p", columns=["dose", "gain"], final="LightGBM"),
    function("sinh", slow=True),
    function("cosh", columns=["gain"], slow=True),
    function("tanh"),
    function("arctan", slow=True),
    function("arcsinh", slow=True),
    function("arcsin", before=[MinMaxScaler()], slow=True),
    function("arccosh", slow=True),
    function("arctanh", before=[MaxAbsScaler()], slow=True),
    category("OneHotEncoder", OneHotEncoder),
    category("OneHotEncoder(sparse_output=False)", lambda: OneHotEncoder(sparse_output=False)),
    category("OneHotEncoder(drop='first')", lambda: OneHotEncoder(drop="first")),
    category("OneHotEncoder(drop='if_binary')", lambda: OneHotEncoder(drop="if_binary")),
    category("OneHotEncoder(max_categories=...)", lambda: OneHotEncoder(max_categories=3)),
    category(
        "OneHotEncoder(min_frequency=..., handle_unknown='infrequent_if_exist')",
        lambda: OneHotEncoder(min_frequency=50, handle_unknown="infrequent_if_exist"),
    ),
    category("OneHotEncoder(handle_unknown='ignore')", lambda: OneHotEncoder(handle_unknown="ignore")),
    category(
        "OneHotEncoder(categories=...)",
        lambda: OneHotEncoder(categories=[["teacher", "clerk", "farmer", "none", "nobody", np.nan], [1, 5, 9]]),
    ),
    category(
        "OneHotEncoder after SimpleImputer",
        lambda: make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder()),
        ["job"],
    ),
    category("OrdinalEncoder", OrdinalEncoder),
    category("OrdinalEncoder(encoded_missing_value=...)", lambda: OrdinalEncoder(encoded_missing_value=-5)),
    category("OrdinalEncoder(max_categories=...)", lambda: OrdinalEncoder(max_categories=3)),
    category(
        "OrdinalEncoder(handle_unknown='use_encoded_value')",
        lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ),
    category(
        "SimpleImputer('most_frequent') of texts",
        lambda: make_pipeline(SimpleImputer(strategy="most_frequent"), OrdinalEncoder()),
        ["job"],
    ),
    number(
        "SimpleImputer(keep_empty_features=True)", lambda: SimpleImputer(keep_empty_features=True), [*NUMBERS, "empty"]
    ),
    number("SimpleImputer of an empty column", SimpleImputer, [*NUMBERS, "empty"]),
    category(
        "SimpleImputer(missing_values='?')",
        lambda: make_pipeline(SimpleImputer(missing_values="?", strategy="most_frequent"), OneHotEncoder()),
        ["town"],
    ),
    category("TargetEncoder", lambda: TargetEncoder(random_state=0, cv=3)),
    category("TargetEncoder of three classes", lambda: TargetEncoder(random_state=0, cv=3), classes=3),
    category("category_encoders.OrdinalEncoder", lambda: ce.OrdinalEncoder(cols=["job", "level"])),
    category("category_encoders.CountEncoder", lambda: ce.CountEncoder(cols=["job"], min_group_size=40)),
    category("category_encoders.TargetEncoder", lambda: ce.TargetEncoder(cols=["job", "level"])),
    category("category_encoders.OneHotEncoder", lambda: ce.OneHotEncoder(cols=["job"], use_cat_names=True)),
    Kind(
        "SelectKBest",
        lambda: [("columns", on(StandardScaler(), ["gain", "dose"])), ("select", SelectKBest(k=2))],
        ["gain", "dose", "sex"],
    ),
    selecting("SelectPercentile", lambda: SelectPercentile(percentile=60), slow=True),
    selecting("SelectFpr", lambda: SelectFpr(alpha=0.2), slow=True),
    selecting("SelectFdr", lambda: SelectFdr(alpha=0.2), slow=True),
    selecting("SelectFwe", lambda: SelectFwe(alpha=0.2), slow=True),
    selecting("GenericUnivariateSelect", lambda: GenericUnivariateSelect(mode="k_best", param=2)),
    selecting("VarianceThreshold", lambda: VarianceThreshold(0.5)),
    selecting("SelectFromModel", lambda: SelectFromModel(DecisionTreeClassifier(max_depth=3, random_state=0))),
    selecting("RFE", lambda: RFE(DecisionTreeClassifier(max_depth=3, random_state=0), n_features_to_select=2)),
    selecting("RFECV", lambda: RFECV(DecisionTreeClassifier(max_depth=3, random_state=0), cv=2), slow=True),
    selecting(
        "SequentialFeatureSelector",
        lambda: SequentialFeatureSelector(
            DecisionTreeClassifier(max_depth=2, random_state=0), n_features_to_select=2, cv=2
        ),
    ),
    Kind(
        "ColumnTransformer(remainder='passthrough')",
        lambda: ColumnTransformer(
            [("sex", OneHotEncoder(), ["sex"]), ("level", "drop", ["level"])], remainder="passthrough"
        ),
        (*NUMBERS, "sex", "level"),
    ),
    Kind(
        "ColumnTransformer(remainder=a scaler)",
        lambda: ColumnTransformer([("sex", OneHotEncoder(sparse_output=False), [3])], remainder=StandardScaler()),
    ),
    Kind(
        "ColumnTransformer(transformer_weights=...)", lambda: on(StandardScaler(), transformer_weights={"step": -0.3})
    ),
    Kind(
        "ColumnTransformer in a ColumnTransformer",
        lambda: ColumnTransformer(
            [
                (
                    "all",
                    on(ColumnTransformer([("gain", MaxAbsScaler(), ["gain"])], remainder=RobustScaler())),
                    make_column_selector(),
                )
            ]
        ),
    ),
    Kind(
        "a column that two steps read",
        lambda: on(
            StandardScaler(),
            NUMBERS,
            ("again", bins("onehot-dense", 3), ["age"]),
            ("level", OneHotEncoder(), ["level"]),
            ("number", MinMaxScaler(), ["level"]),
        ),
        (*NUMBERS, "sex", "level"),
    ),
    Kind(
        "FeatureUnion as the first step",
        lambda: FeatureUnion([("same", "passthrough"), ("is", MissingIndicator()), ("scaled", StandardScaler())]),
        NUMBERS,
    ),
    Kind(
        "FeatureUnion",
        lambda: [
            ("columns", on(SimpleImputer())),
            (
                "union",
                FeatureUnion(
                    [("scaled", StandardScaler()), ("root", FunctionTransformer(np.cbrt)), ("no", "drop")],
                    transformer_weights={"root": 2.0},
                ),
            ),
        ],
    ),
    Kind("set_output(transform='pandas')", lambda: on(StandardScaler()).set_output(transform="pandas")),
    Kind("set_output(transform='polars')", lambda: on(StandardScaler()).set_output(transform="polars")),
    Kind(
        "scikit-learn's documented pipeline",
        lambda: on(
            make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
            NUMBERS,
            (
                "job",
                make_pipeline(
                    SimpleImputer(strategy="constant", fill_value="missing"), OneHotEncoder(handle_unknown="ignore")
                ),
                ["job"],
            ),
        ),
        (*NUMBERS, "sex", "job"),
    ),
    number(
        "scaled, root, bins as one-hot",
        lambda: make_pipeline(
            SimpleImputer(),
            StandardScaler(),
            FunctionTransformer(np.cbrt),
            bins("ordinal", 5),
            OneHotEncoder(drop="first", sparse_output=False),
        ),
    ),
    number(
        "logarithm before box-cox",
        lambda: make_pipeline(FunctionTransformer(np.log1p), PowerTransformer(method="box-cox")),
        ["dose"],
        low=TINY,
    ),
    Kind(
        "imbalanced-learn: Pipeline with samplers",
        lambda: [
            ("over", RandomOverSampler(random_state=0)),
            ("columns", on(StandardScaler())),
            ("under", RandomUnderSampler(random_state=0)),
        ],
        sampled=True,
    ),
]


class MyScaler(StandardScaler):
    """Could do anything."""


BY_COLUMN = "does not work column by column, or is not known to; `boxqte test`"
REFUSED: list[Kind] = [
    number("Normalizer", lambda: make_pipeline(SimpleImputer(), Normalizer()), refused=f"Normalizer {BY_COLUMN}"),
    number(
        "PolynomialFeatures",
        lambda: make_pipeline(SimpleImputer(), PolynomialFeatures()),
        refused=f"PolynomialFeatures {BY_COLUMN}",
    ),
    number("PCA", lambda: make_pipeline(SimpleImputer(), PCA(2)), refused=f"PCA {BY_COLUMN}"),
    number("KNNImputer", KNNImputer, refused=f"KNNImputer {BY_COLUMN}"),
    number("IterativeImputer", IterativeImputer, refused=f"IterativeImputer {BY_COLUMN}"),
    number(
        "SplineTransformer",
        lambda: make_pipeline(SimpleImputer(), SplineTransformer()),
        refused=f"SplineTransformer {BY_COLUMN}",
    ),
    number(
        "FunctionTransformer(numpy.sin)",
        lambda: FunctionTransformer(np.sin),
        refused="FunctionTransformer with sin is not known to be monotone; accepted are numpy's functions of one number",
    ),
    number(
        "FunctionTransformer(numpy.reciprocal)",
        lambda: FunctionTransformer(np.reciprocal),
        ["dose"],
        refused="FunctionTransformer with reciprocal is not known to be monotone",
    ),
    number(
        "FunctionTransformer(a function of one's own)",
        lambda: FunctionTransformer(lambda x: x),
        refused="FunctionTransformer with <lambda> is not known to be monotone",
    ),
    number(
        "FunctionTransformer with kw_args",
        lambda: FunctionTransformer(np.log1p, kw_args={"casting": "same_kind"}),
        ["dose"],
        refused="FunctionTransformer with log1p and kw_args is not known",
    ),
    number("a subclass of a step", MyScaler, refused=f"MyScaler {BY_COLUMN}"),
    category(
        "category_encoders.BinaryEncoder", lambda: ce.BinaryEncoder(cols=["job"]), refused=f"BinaryEncoder {BY_COLUMN}"
    ),
    category(
        "category_encoders with composite_cols",
        lambda: ce.TargetEncoder(cols=[], composite_cols=[("job", "level")]),
        refused="composite_cols reads two columns at once",
    ),
]


# ---------------------------------------------------------------------------------------------------------------------
# The pipeline's own word


def as_table(ensemble: TreeEnsemble, rows: np.ndarray, like: pd.DataFrame) -> pd.DataFrame:
    """Rows of the model that was read as the user's table: its columns, its values, NaN for missing ones."""
    table = {}
    for name in like:
        if name not in ensemble.feature_names:
            table[name] = pd.Series([like[name].iloc[0]] * len(rows), dtype=like[name].dtype)
            continue
        feature = ensemble.feature_names.index(name)
        values = ensemble.categories.get(feature)
        if values is None:
            table[name] = rows[:, feature]
        else:
            held = [np.nan if np.isnan(code) else values[int(code)] for code in rows[:, feature]]
            numeric = all(isinstance(value, (int, float)) for value in values)
            table[name] = pd.Series(held) if numeric else pd.Series(held, dtype=object)
    return pd.DataFrame(table)


def own_classes(pipeline: Any, table: pd.DataFrame) -> np.ndarray:
    labels = np.asarray(pipeline.classes_).tolist()
    return np.array([labels.index(label) for label in np.asarray(pipeline.predict(table)).reshape(-1).tolist()])


def own_leaves(pipeline: Any, table: pd.DataFrame) -> np.ndarray:
    """The leaf ids of the last step's own library, on what the steps before it write."""
    model, rows = pipeline[-1], table
    for _, step in pipeline.steps[:-1]:
        if not hasattr(step, "fit_resample"):
            rows = step.transform(rows)
    if isinstance(model, HistGradientBoostingClassifier):
        return leaves_of_hist(model, rows)
    if isinstance(model, LGBMClassifier):
        return np.asarray(model.predict(rows, pred_leaf=True))
    if isinstance(model, CatBoostClassifier):
        return np.asarray(model.calc_leaf_indexes(rows))
    leaves = np.asarray(model.apply(rows))
    return leaves.reshape(len(leaves), -1)


def leaves_of_hist(model: HistGradientBoostingClassifier, rows: Any) -> np.ndarray:
    """Histogram boosting has no apply(): its own traversal, with the values replaced by node numbers."""
    inside = model._preprocess_X(rows, reset=False)
    known, columns = model._bin_mapper.make_known_categories_bitsets()
    reached = []
    for predictor in (p for iteration in model._predictors for p in iteration):
        nodes = predictor.nodes.copy()
        nodes["value"] = np.arange(len(nodes))
        numbered = TreePredictor(nodes, predictor.binned_left_cat_bitsets, predictor.raw_left_cat_bitsets)
        reached.append(numbered.predict(inside, known, columns, 1))
    return np.stack(reached, axis=1).astype(int)


def takes_missing(pipeline: Any, like: pd.DataFrame, name: str) -> bool:
    """Whether the pipeline predicts for a row in which one column is missing."""
    row = like.dropna(subset=[c for c in like if c != "empty"]).iloc[:1].copy()
    row[name] = np.nan if row[name].dtype != object else pd.Series([np.nan], dtype=object, index=row.index)
    try:
        pipeline.predict(row)
    except (ValueError, TypeError):
        return False
    return True


def unfair_share(pipeline: Any, domains: dict[str, Sequence[Any]], sensitive: str) -> Fraction:
    """The naive oracle: of all inputs, the share whose class another value of the sensitive column changes."""
    names = list(domains)
    table = pd.DataFrame(list(product(*domains.values())), columns=names)
    texts = [name for name in names if any(isinstance(v, str) for v in domains[name])]
    table = table.astype({name: object if name in texts else float for name in names})
    classes: dict[tuple[Any, ...], set[Any]] = {}
    keys = [tuple(row) for row in table.drop(columns=sensitive).astype(str).to_numpy().tolist()]
    labels = np.asarray(pipeline.predict(table)).reshape(-1).tolist()
    for key, label in zip(keys, labels):
        classes.setdefault(key, set()).add(label)
    unfair = sum(len(classes[key]) > 1 for key in keys)
    return Fraction(unfair, len(keys))
