"""Ten classes: how robust is a model of handwritten digits, seen through six pixels, to a change of one grey level?

    python examples/many_classes.py [SECONDS]

Needs scikit-learn. Prints the certain bounds and, inside them, an interval that holds with confidence 0.999999.
"""

from __future__ import annotations

import sys

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from boxqte import Attribute, Robustness, Space, quantify

PIXELS = [19, 21, 26, 36, 42, 43]


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    digits = load_digits()
    names = [f"pixel_{p}" for p in PIXELS]
    frame = pd.DataFrame(digits.data[:, PIXELS].astype(int), columns=names)
    model = RandomForestClassifier(20, max_depth=6, random_state=0).fit(frame, digits.target)
    space = Space([Attribute.integer(name, 0, 16) for name in names])
    result = quantify(model, space, Robustness(dict.fromkeys(names, 1), kappa=0), time_limit=seconds, gap=0.02)
    print(result)


if __name__ == "__main__":
    main()
