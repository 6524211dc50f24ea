"""The experiments: data sets, models, the paper's configurations and figures, and the tables made from them.

`python -m benchmarks.paper` (make rq1, rq2, rq3, scaling) runs them.
"""
