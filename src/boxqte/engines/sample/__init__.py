"""Statistical bounds: points drawn from what is undecided, each decided exactly (docs/statistics.md)."""
