"""The example notebook runs from top to bottom on the real data, and is kept with its output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat (extra 'test') is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient (extra 'test') is not installed")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "adult.ipynb"
DATA = Path(os.environ.get("BOXQTE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def outputs(notebook: object) -> list[str]:
    """The text of every cell's results."""
    found = []
    for cell in notebook.cells:  # type: ignore[attr-defined]
        for output in cell.get("outputs", []):
            found.append(output.get("data", {}).get("text/plain", ""))
    return found


def test_it_is_kept_with_its_output_and_names_no_machine() -> None:
    notebook = nbformat.read(NOTEBOOK, 4)
    assert all(cell.get("execution_count") for cell in notebook.cells if cell.cell_type == "code")
    assert NOTEBOOK.stat().st_size < 300_000
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert "/home/" not in text
    assert "/root/" not in text


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}; BOXQTE_DATA names their folder")
def test_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXQTE_DATA", str(DATA))
    kept = nbformat.read(NOTEBOOK, 4)
    run = nbformat.read(NOTEBOOK, 4)
    nbclient.NotebookClient(run, timeout=500, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    assert len(outputs(run)) >= len(outputs(kept)) > 6
