"""`python -m boxqte` is the command `boxqte`."""

from __future__ import annotations

import sys

from boxqte.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
