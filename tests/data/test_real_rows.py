"""Every real row that is accepted survives every shipped template, and real lengths pack well."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seatrial.cli.main import app
from seatrial.data.inspect import statistics
from seatrial.data.template import SHIPPED
from seatrial.data.validate import validate
from tests.data.conftest import family_renderer

FOLDER = os.environ.get("SEATRIAL_REAL_DATA")
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not FOLDER, reason="SEATRIAL_REAL_DATA does not name the folder of real rows"),
]
SOURCES = {
    "glaive_sharegpt_200.json": "glaive",
    "glaive_raw_5.jsonl": "glaive",
    "xlam_60.json": "xlam",
    "hermes_4.json": "hermes",
}


UNSERVABLE = {("llama3-xlam", "glaive_sharegpt_200.json"): ["glaive-9"]}
"""Prose that shows JSON in a code block: the xlam parser takes the block for calls and drops it from the answer."""


def prepared(file: str, out: Path) -> Path:
    arguments = ["data", "prepare", "--source", SOURCES[file], "--in", str(Path(str(FOLDER)) / file), "--out", str(out)]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    return out


@pytest.fixture(scope="module", params=SOURCES)
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(request.param, tmp_path_factory.mktemp("prepared") / request.param)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_accepted_row_round_trips(name: str, records: Path) -> None:
    result = validate(records, family_renderer(name), all_rows=True)
    refused = UNSERVABLE.get((name, records.name), [])
    assert [failure["id"] for failure in result["failures"]] == refused
    assert result["rows"] - len(refused) == result["mask_ok"] == result["round_trip_ok"] > 0


def test_real_lengths_fill_their_packs(tmp_path: Path) -> None:
    """97 % and more, once rows that are longer than a pack are left out."""
    merged = tmp_path / "records.jsonl"
    merged.write_bytes(b"".join((prepared(file, tmp_path / file) / "records.jsonl").read_bytes() for file in SOURCES))
    found = statistics(merged, family_renderer("tiny"), pack_length=4096)
    assert found.pack_efficiency > 0.97
    assert found.over_long < 0.1 * found.rows
