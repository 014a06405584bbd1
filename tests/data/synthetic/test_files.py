import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from seatrial.cli.data_synthesize import synthesize
from seatrial.data.conversation import read_records
from seatrial.data.synthetic import Split, corpus, write_corpus
from seatrial.errors import UsageError

APP = typer.Typer()
APP.command()(synthesize)


def test_what_is_written_is_the_corpus(tmp_path: Path) -> None:
    manifest = write_corpus(tmp_path / "made", 120, seed=4)
    assert list(read_records(tmp_path / "made")) == list(corpus(120, seed=4, split=Split.TRAIN))
    for split in Split:
        if split is not Split.TRAIN:
            rows = list(read_records(tmp_path / "made" / f"{split}.jsonl"))
            assert rows == list(corpus(12, seed=4, split=split))
            assert manifest["suites"][split]["rows"] == 12
    assert json.loads((tmp_path / "made" / "manifest.json").read_text()) == manifest
    assert sum(manifest["categories"].values()) == 120
    assert 0.5 < manifest["share_with_call"] < 0.9


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    one, two = (write_corpus(tmp_path / name, 50, seed=1) for name in ("one", "two"))
    assert one == two
    assert one["sha256"] != write_corpus(tmp_path / "three", 50, seed=2)["sha256"]


def test_records_are_not_overwritten(tmp_path: Path) -> None:
    write_corpus(tmp_path, 10, seed=1)
    with pytest.raises(UsageError, match="choose another --out"):
        write_corpus(tmp_path, 10, seed=1)


def test_no_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--rows 0"):
        write_corpus(tmp_path, 0, seed=1)


def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, ["--rows", "40", "--seed", "2", "--out", str(tmp_path / "a"), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["rows"] == 40
    quiet = CliRunner().invoke(APP, ["--rows", "40", "--out", str(tmp_path / "b")])
    assert quiet.exit_code == 0
    assert quiet.stdout == ""
    assert "unseen_values" in quiet.stderr


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_no_half_of_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--out .*: cannot be written: File too large"):
        write_corpus(tmp_path / "made", 50, seed=1)
    assert list((tmp_path / "made").iterdir()) == []
