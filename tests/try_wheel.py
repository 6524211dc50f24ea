"""What `make wheel` and the release workflow run with an installed wheel, where no compiler is: demo, core, one answer."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import boxqte
from boxqte import Fairness, _core, quantify
from boxqte.examples import loan_ensemble, loan_space


def main() -> None:
    here = Path(boxqte.__file__).parent
    assert "site-packages" in here.parts, f"not the installed package: {here}"
    files = {str(file) for file in importlib.metadata.files("boxqte") or ()}
    assert not [f for f in files if f.endswith((".cpp", ".hpp"))], "sources in the wheel"
    assert any(f.startswith("boxqte/_core/_baseline.") for f in files), "no core in the wheel"
    assert {"boxqte/py.typed", "boxqte/_core/__init__.pyi", "boxqte/report/style.css"} <= files
    if sys.version_info >= (3, 12) and os.name == "posix":
        assert "boxqte/_core/_baseline.abi3.so" in files, "the core is not of the stable ABI"
    for name in _core.SETS:
        if any(f.startswith(f"boxqte/_core/_{name}.") for f in files):
            done = subprocess.run(
                [sys.executable, "-c", "from boxqte import _core; print(_core.INSTRUCTION_SET)"],
                env=os.environ | {"BOXQTE_CORE": name}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            missing = "this processor does not run" in done.stderr
            assert done.stdout.strip() == name or missing, done.stderr
            print(f"core {name}: {'not on this processor' if missing else 'loads'}")
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"))
    assert result.converged
    assert 0 <= result.value <= 1
    subprocess.run([sys.executable, "-m", "boxqte", "demo"], check=True)
    print(f"boxqte {importlib.metadata.version('boxqte')}: the wheel works, on the core {_core.INSTRUCTION_SET}")


if __name__ == "__main__":
    main()
