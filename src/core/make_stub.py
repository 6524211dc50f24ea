"""Writes src/boxqte/_core/__init__.pyi, what mypy knows of the core, from the core that is built: `make stub`.

`python src/core/make_stub.py --check` says whether it is up to date, which the tests ask.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

from boxqte import _core

STUB = Path(__file__).parents[1] / "boxqte" / "_core" / "__init__.pyi"
CHOICE = '''
INSTRUCTION_SET: str
"""Of the core that was chosen: baseline, avx2 or avx512."""

SETS: tuple[str, ...]
"""All that there can be, the best first."""
'''


def main() -> int:
    text = stub()
    if "--check" in sys.argv[1:]:
        if not STUB.exists() or STUB.read_text(encoding="utf-8") != text:
            print(f"{STUB.parent.name}/{STUB.name} is out of date; run `make stub`", file=sys.stderr)
            return 1
        return 0
    STUB.write_text(text, encoding="utf-8")
    return 0


def stub() -> str:
    """The stub of the chosen core; the same for every instruction set."""
    maker = StubGen(_core.chosen)
    maker.put(_core.chosen)
    text = maker.get().replace(f"{_core.chosen.__name__}.", "")
    # How long and how aligned an array must be is checked by the core; mypy needs its numbers only.
    text = re.sub(r"Annotated\[(NDArray\[[\w.]+\]), dict\([^\[\]]*?\)\]", r"\1", text)
    if "Annotated[" not in text:
        text = re.sub(r"^from typing import Annotated\n|(^from typing import.*), Annotated\b", r"\1", text, flags=re.M)
    text = re.sub(r"-> dict:", "-> dict[str, Any]:", re.sub(r"-> tuple:", "-> tuple[Any, ...]:", text)).replace(
        "import enum\n", "import enum\nfrom typing import Any\n", 1
    )
    return _ruff("format", "-", text=_ruff("check", "--select", "I", "--fix", "--quiet", "-", text=text + CHOICE))


def _ruff(*arguments: str, text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", STUB.name]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
