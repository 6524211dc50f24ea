"""CatBoost's own binary format, made JSON of by CatBoost: in a child process, which a damaged file may kill."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from boxqte.errors import ModelError
from boxqte.models.importers.structure import read_bytes

SECONDS = 120
MEMORY = 4 * 2**30  # bytes of address space; importing CatBoost takes one GiB of it
# The child's whole program. It says nothing but what CatBoost says; its exit code and the file are what count.
CHILD = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError):
    pass
import catboost
catboost.CatBoost().load_model(sys.argv[1], format="cbm").save_model(sys.argv[2], format="json")
"""


def exported_cbm(path: Path) -> bytes:
    """The JSON of a .cbm file."""
    if importlib.util.find_spec("catboost") is None:
        raise ModelError(
            f"{path}: this is a CatBoost file (cbm), which CatBoost itself has to read; install boxqte[catboost], or save "
            "the model with save_model(path, format='json')"
        )
    size = path.stat().st_size
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.json"
        program = [sys.executable, "-c", CHILD, str(path.resolve()), str(target), str(MEMORY + 40 * size)]
        try:
            done = subprocess.run(program, capture_output=True, timeout=SECONDS, check=False, cwd=folder)
        except subprocess.TimeoutExpired:
            raise ModelError(f"{path}: CatBoost has not read it in {SECONDS} s; the file is damaged") from None
        if done.returncode != 0 or not target.is_file():
            raise ModelError(
                f"{path}: CatBoost cannot read it ({_reason(done)}); the file is damaged, or holds text features"
            )
        return read_bytes(target)


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        return f"its process ended with signal {-done.returncode}"
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:150] if lines else f"exit code {done.returncode}"
