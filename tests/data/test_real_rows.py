"""Real rows of the public datasets, which are not part of the repository."""

from pathlib import Path

import pytest

from seatrial.data.convert import Recipe
from seatrial.data.prepare import prepare
from seatrial.records import JsonObject


def prepared(folder: Path, out: Path, source: str, file: str) -> JsonObject:
    return prepare(folder / file, out / f"{source}-{file}", Recipe(source))


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("source", "file", "rows", "least", "share_with_call"),
    [
        ("glaive", "glaive_raw_5.jsonl", 5, 5, 5 / 14),
        ("glaive", "glaive_sharegpt_200.json", 200, 198, 137 / 662),
        ("sharegpt", "glaive_sharegpt_200.json", 200, 198, 137 / 662),
        ("xlam", "xlam_60.json", 60, 59, 1.0),
        ("hermes", "hermes_4.json", 4, 4, 2 / 5),
    ],
)
def test_real_rows_convert(
    real_data_dir: Path, tmp_path: Path, source: str, file: str, rows: int, least: int, share_with_call: float
) -> None:
    manifest = prepared(real_data_dir, tmp_path, source, file)
    assert manifest["rows"] == rows
    assert manifest["accepted"] >= least
    assert manifest["share_with_call"] == pytest.approx(share_with_call, abs=0.01)


@pytest.mark.real_data
@pytest.mark.parametrize("file", ["glaive_raw_5.jsonl", "xlam_60.json", "hermes_4.json"])
def test_real_rows_are_told_apart(real_data_dir: Path, tmp_path: Path, file: str) -> None:
    by_name = prepared(real_data_dir, tmp_path, file.split("_")[0], file)
    assert prepared(real_data_dir, tmp_path, "auto", file)["records_sha256"] == by_name["records_sha256"]


@pytest.mark.real_data
def test_the_repairs_of_real_rows_are_the_known_defects_of_their_datasets(real_data_dir: Path, tmp_path: Path) -> None:
    assert prepared(real_data_dir, tmp_path, "glaive", "glaive_sharegpt_200.json")["repairs"] == {}
    xlam = prepared(real_data_dir, tmp_path, "xlam", "xlam_60.json")["repairs"]
    assert xlam["flat_parameters"] == xlam["python_types"] == 60
    assert xlam["duplicate_tool_dropped"] == 3
    assert xlam.keys() == {
        "flat_parameters",
        "python_types",
        "default_coerced",
        "default_dropped",
        "int_widened_to_number",
        "duplicate_tool_dropped",
    }
    hermes = prepared(real_data_dir, tmp_path, "hermes", "hermes_4.json")["repairs"]
    assert hermes["name_moved_outward"] == hermes["argument_renamed"] == 1
