"""An audit in an MLflow run, against a local store of files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import boxqte
from boxqte.errors import ReportError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.integrations.mlflow import artifacts, log_audit, metrics

POLICY = '[require]\nrace = { sensitive = "race", at_least = 0.5 }\n'


def audited(folder: Path, **more: Any) -> boxqte.Audit:
    (folder / "policy.toml").write_text(POLICY)
    return boxqte.audit(
        loan_ensemble(), space=loan_space(), sensitive=["race", "age"], policy=folder / "policy.toml", engine="exhaustive",
        robustness=0, **more,
    )  # fmt: skip


def test_metrics_have_bounds_and_leave_out_what_is_not_known(tmp_path: Path) -> None:
    audit = audited(tmp_path)
    found = metrics(audit)
    race = audit["race"]
    assert (found["race.lower"], found["race.upper"], found["race.value"]) == (race.lower, race.upper, race.value)
    assert found["race_ age.lower"] == audit["race, age"].lower
    assert found["rates.race.ratio_lower"] == audit.rates[0].ratio.lower  # type: ignore[union-attr]
    assert found["passed"] == 1
    assert not any("statistical" in name or "confidence" in name for name in found)


def test_an_undefined_measure_is_no_metric(tmp_path: Path) -> None:
    found = metrics(
        boxqte.audit(loan_ensemble(), space=loan_space(), sensitive="race", kappa="0.9999999", robustness=0)
    )
    assert "race.seconds" in found
    assert "race.lower" not in found


def test_artifacts_are_what_the_audit_writes(tmp_path: Path) -> None:
    audit = audited(tmp_path)
    texts = artifacts(audit)
    assert sorted(texts) == ["audit.json", "gate.md", "gate.xml", "model_card.md", "policy.toml", "space.json"]
    assert json.loads(texts["audit.json"]) == json.loads(json.dumps(audit.to_json()))
    assert texts["policy.toml"] == POLICY


def test_without_mlflow_the_way_to_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ReportError, match=r"log_audit needs MLflow: pip install boxqte\[mlflow\]"):
        log_audit(audited(tmp_path))


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real library, with a store of its own; it brings 40 packages, so that the tests do without it unless it is there."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    library = pytest.importorskip("mlflow", reason="pip install boxqte[mlflow] brings 40 packages")
    library.set_tracking_uri((tmp_path / "runs").as_uri())
    return library


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_a_run_has_the_numbers_and_the_files(tmp_path: Path, mlflow: Any) -> None:
    audit = audited(tmp_path, report=True)
    with mlflow.start_run() as run:
        assert log_audit(audit, time_limit=5) == run.info.run_id
    client = mlflow.MlflowClient()
    logged = client.get_run(run.info.run_id).data
    assert logged.metrics == {f"boxqte.{name}": value for name, value in metrics(audit).items()}
    assert logged.tags["boxqte.verdict"] == "holds"
    assert logged.tags["boxqte.model"] == audit.model.fingerprint
    names = {file.path for file in client.list_artifacts(run.info.run_id, "boxqte")}
    assert names == {f"boxqte/{name}" for name in (*artifacts(audit), "report.html")}
    page = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/boxqte/report.html")
    assert page.startswith("<!DOCTYPE html>")


@pytest.mark.filterwarnings("ignore")
def test_without_an_active_run_there_is_a_new_one_and_a_wrong_one_is_an_error(tmp_path: Path, mlflow: Any) -> None:
    audit = audited(tmp_path)
    run_id = log_audit(audit, report=False, prefix="fairness")
    assert mlflow.active_run() is None
    assert "fairness.race.lower" in mlflow.MlflowClient().get_run(run_id).data.metrics
    assert log_audit(audit, run_id=run_id, report=False) == run_id
    with pytest.raises(ReportError, match=r"MLflow: .*none"):
        log_audit(audit, run_id="none", report=False)
