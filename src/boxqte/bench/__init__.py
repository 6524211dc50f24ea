"""The experiments: data sets, models, the paper's configurations and figures, and the tables made from them.

`boxqte bench` runs them; nothing else in the package imports from here.
"""
