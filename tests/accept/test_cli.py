"""The commands, as users type them."""

import json
from pathlib import Path

from typer.testing import CliRunner

from seatrial.acceptance import Acceptance
from seatrial.cli.main import app
from seatrial.records import CheckResult, Verdict, write_json


def test_simulate_writes_what_was_injected_and_found(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    arguments = ["accept", "simulate", "--nodes", "24", "--faults", "5", "--seed", "3", "--json", str(target)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    report = json.loads(target.read_text())
    assert report["injected"] == report["found"] and len(report["found"]) == 5
    assert set(report["found"][0]) == {"kind", "node", "part"}
    assert CliRunner().invoke(app, ["accept", "simulate", "--nodes", "4", "--faults", "5"]).exit_code != 0


def test_explain_shows_a_model_for_any_layout() -> None:
    arguments = ["accept", "explain", "collectives.nccl", "--gpu", "h200 sxm", "--ranks", "16", "--nodes", "2"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0 and "all_reduce by RING, 16 x H200 SXM, 2 nodes" in done.stdout
    assert "NVLSTREE" in done.stdout and "because the narrower of NVLink rings" in done.stdout
    assert CliRunner().invoke(app, ["accept", "explain", "host.gemm", "--gpu", "H200 SXM"]).exit_code != 0
    assert CliRunner().invoke(app, ["accept", "explain", "collectives.nccl", "--gpu", "V100"]).exit_code != 0
    assert "node 0" not in CliRunner().invoke(app, ["accept", "explain", "cluster.clock"]).stdout


def test_compare_exits_by_what_it_finds(tmp_path: Path) -> None:
    for name, verdict in (("a", Verdict.PASS), ("b", Verdict.FAIL)):
        check = CheckResult(check="host.cpu", question="?", verdict=verdict, reason="so")
        acceptance = Acceptance(verdict=verdict, checks=(check,), provenance={}, seconds=1.0)
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "acceptance.json", acceptance.model_dump(mode="json"))
    worse = CliRunner().invoke(app, ["accept", "compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json", "-"])
    assert worse.exit_code == 1 and json.loads(worse.stdout)["worse"] is True
    assert CliRunner().invoke(app, ["accept", "compare", str(tmp_path / "b"), str(tmp_path / "a")]).exit_code == 0
