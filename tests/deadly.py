"""A worker that dies of every task, in a module of its own so that a worker process imports nothing else with it."""

from __future__ import annotations

import os
import signal


class Deadly:
    def start(self, task: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
