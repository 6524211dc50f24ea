"""A worker process: `python -c 'from boxqte.engines.smt.worker import main; main()'`, started by ProcessPool."""

from __future__ import annotations

from boxqte.engines.smt.pool import serve


def main() -> None:
    """Serve tasks until standard input ends. The first message makes the worker: a function and its arguments."""
    serve(lambda setup: setup[0](*setup[1:]))
