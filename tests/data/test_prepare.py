"""The whole of ``seatrial data prepare``, from files to files."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.data.augment import Augmentation
from seatrial.data.conversation import read_records
from seatrial.data.convert import Recipe
from seatrial.data.dedup import Dedup
from seatrial.data.prepare import prepare
from seatrial.data.reason import Reason
from seatrial.errors import UsageError
from tests.data.rows import EXAMPLES, GLAIVE, XLAM, Row, changed


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def glaive_rows(count: int) -> list[Row]:
    return [changed(GLAIVE, chat=GLAIVE["chat"].replace("Thanks!", f"Thanks, {n}!")) for n in range(count)]


def rejections(out: Path) -> list[Row]:
    return [json.loads(line) for line in (out / "rejections.jsonl").read_text().splitlines()]


def test_every_row_is_a_record_or_a_listed_rejection(tmp_path: Path) -> None:
    rows = [GLAIVE, {"system": 1}, [1], XLAM, GLAIVE | {"id": "g7", "chat": "USER: a"}]
    file = write_lines(tmp_path / "in.jsonl", rows)
    file.write_text(file.read_text() + '{"chat": "cut o')
    out = tmp_path / "out"
    manifest = prepare(file, out, Recipe("glaive"))
    assert (manifest["rows"], manifest["accepted"]) == (6, 1)
    assert manifest["rejected"] == {
        "wrong_shape": 2,
        "not_an_object": 1,
        "last_turn_not_assistant": 1,
        "not_json": 1,
    }
    assert [(r["row"], r["place"], r["id"], r["reason"]) for r in rejections(out)] == [
        (2, f"{file}:2", "glaive-2", "wrong_shape"),
        (3, f"{file}:3", "glaive-3", "not_an_object"),
        (4, f"{file}:4", "17", "wrong_shape"),
        (5, f"{file}:5", "g7", "last_turn_not_assistant"),
        (6, f"{file}:6", "glaive-6", "not_json"),
    ]
    assert all(rejection["detail"] for rejection in rejections(out))
    assert [record.id for record in read_records(out)] == ["glaive-1"]


def test_the_manifest_says_where_the_records_come_from(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [GLAIVE])
    manifest = prepare(file, tmp_path / "out", Recipe("glaive"))
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == manifest
    assert manifest["inputs"] == [{"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}]
    records = (tmp_path / "out" / "records.jsonl").read_bytes()
    assert manifest["records_sha256"] == hashlib.sha256(records).hexdigest()
    assert manifest["normaliser_version"] >= 1
    assert manifest["share_with_call"] == pytest.approx(1 / 3)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "records.jsonl",
        "rejections.jsonl",
    ]


def test_a_folder_of_all_formats_is_told_apart_row_by_row(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "some.jsonl", [EXAMPLES[name] for name in ("glaive", "xlam", "hermes")])
    (folder / "more.json").write_text(json.dumps([EXAMPLES[name] for name in ("toolace", "openai", "sharegpt")]))
    manifest = prepare(folder, tmp_path / "out", Recipe("auto"))
    assert {source: counts["accepted"] for source, counts in manifest["sources"].items()} == dict.fromkeys(EXAMPLES, 1)
    records = list(read_records(tmp_path / "out"))
    assert [record.source for record in records] == ["toolace", "openai", "sharegpt", "glaive", "xlam", "hermes"]
    assert records[3].id == "glaive-4"  # numbered over all files


def test_the_same_rows_in_any_container_and_by_any_number_of_processes(tmp_path: Path) -> None:
    rows = glaive_rows(3000)
    lines = write_lines(tmp_path / "in.jsonl", rows)
    array = tmp_path / "in.json"
    array.write_text(json.dumps(rows, indent=1))
    digests = {
        prepare(path, tmp_path / f"out{number}", Recipe("glaive"), workers=workers)["records_sha256"]
        for number, (path, workers) in enumerate([(lines, 1), (array, 1), (lines, 2)])
    }
    assert len(digests) == 1


def test_duplicates_are_left_out_and_listed(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [GLAIVE, XLAM, GLAIVE, changed(XLAM, id=18)])
    assert prepare(file, tmp_path / "all", Recipe("auto"))["accepted"] == 4
    manifest = prepare(file, tmp_path / "out", Recipe("auto", dedup=Dedup.EXACT))
    assert (manifest["accepted"], manifest["rejected"]) == (2, {"duplicate": 2})
    assert [rejection["id"] for rejection in rejections(tmp_path / "out")] == ["glaive-3", "18"]


def test_held_out_tools_get_a_file_of_their_own(tmp_path: Path) -> None:
    rows = []
    for number in range(300):
        tools = [{"name": f"tool{(number + i) % 60}", "description": "", "parameters": {}} for i in range(2)]
        answers = [{"name": tools[0]["name"], "arguments": {}}]
        rows.append({"id": number, "query": "q", "answers": json.dumps(answers), "tools": json.dumps(tools)})
    out = tmp_path / "out"
    manifest = prepare(write_lines(tmp_path / "in.jsonl", rows), out, Recipe("xlam", held_out_tools=0.3))
    train = {tool.name for record in read_records(out) for tool in record.tools}
    held_out = list(read_records(out / "held_out.jsonl"))
    called = {call.name for record in held_out for message in record.messages for call in message.tool_calls}
    assert called
    assert train.isdisjoint(called)
    assert manifest["held_out"] == len(held_out)
    straddling = manifest["rejected"]["straddles_split"]
    assert len(list(read_records(out))) + len(held_out) + straddling == manifest["rows"] == 300
    assert manifest["accepted"] == 300 - straddling


def test_rows_of_a_benchmark_are_left_out(tmp_path: Path) -> None:
    benchmark = write_lines(tmp_path / "bench.jsonl", [{"question": XLAM["query"], "function": []}])
    file = write_lines(tmp_path / "in.jsonl", [GLAIVE, XLAM])
    manifest = prepare(file, tmp_path / "out", Recipe("auto", benchmark=benchmark))
    assert (manifest["accepted"], manifest["rejected"]) == (1, {"contaminated": 1})


def test_augmented_rows_are_written_and_counted(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [GLAIVE, XLAM, *EXAMPLES.values()])
    plan = Augmentation(mask_names=1.0, negatives=1.0, distractors=2)
    manifest = prepare(file, tmp_path / "out", Recipe("auto"), augmentation=plan)
    records = list(read_records(tmp_path / "out"))
    counts = manifest["augmentation"]
    assert len(records) == manifest["accepted"] + counts["negatives"]
    assert sum("names_masked" in record.repairs for record in records) == counts["masked"] > 0
    assert sum("distractors_added" in record.repairs for record in records) == counts["with_distractors"] > 0
    digest = hashlib.sha256((tmp_path / "out" / "records.jsonl").read_bytes()).hexdigest()
    assert manifest["records_sha256"] == digest


def test_lost_calls_are_refused_unless_told_otherwise(tmp_path: Path) -> None:
    """The reader that kept the refusals only: every row that calls is broken."""
    refusal = GLAIVE["chat"].split("ASSISTANT: <func")[0] + "ASSISTANT: I cannot. <|endoftext|>"
    rows = [changed(GLAIVE, chat=refusal.replace("high", f"high {n}")) for n in range(200)]
    file = write_lines(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out"
    with pytest.raises(
        UsageError, match=r"0\.0% of 200 assistant turns with tools hold a call.*--min-call-share 0\.00"
    ):
        prepare(file, out, Recipe("glaive"))
    assert [path.name for path in out.iterdir()] == ["rejections.jsonl"]
    assert prepare(file, out, Recipe("glaive"), min_call_share=0.0)["accepted"] == 200


def test_a_low_yield_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    rows = [row if n % 2 else changed(row, system="SYSTEM: {") for n, row in enumerate(glaive_rows(100))]
    file = write_lines(tmp_path / "in.jsonl", rows)
    with pytest.raises(UsageError, match=r"50\.0% of 100 rows.*bad_tools \(50\); --min-yield 0\.50"):
        prepare(file, tmp_path / "out", Recipe("glaive"))
    assert len(rejections(tmp_path / "out")) == 50
    assert prepare(file, tmp_path / "out", Recipe("glaive"), min_yield=0.5)["accepted"] == 50


def test_no_row_left_is_refused_with_the_most_frequent_reason(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [XLAM, XLAM, {"system": "SYSTEM:", "chat": ""}])
    with pytest.raises(UsageError, match=r"none of its 3 rows could be used, most often for wrong_shape \(2\)"):
        prepare(file, tmp_path / "out", Recipe("glaive"))
    assert [rejection["reason"] for rejection in rejections(tmp_path / "out")][2] == Reason.NO_TURNS
    (tmp_path / "empty.json").write_text("[]")
    with pytest.raises(UsageError, match="holds no rows"):
        prepare(tmp_path / "empty.json", tmp_path / "out", Recipe("glaive"))


def test_another_preparation_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", glaive_rows(30))
    out = tmp_path / "out"
    prepare(file, out, Recipe("glaive", held_out_tools=1.0))
    before = (out / "held_out.jsonl").read_bytes()
    with pytest.raises(UsageError, match=r"already holds prepared records.*--force"):
        prepare(file, out, Recipe("glaive"))
    broken = write_lines(tmp_path / "broken.jsonl", [{"a": 1}])
    with pytest.raises(UsageError, match="none of its 1 rows"):
        prepare(broken, out, Recipe("glaive"), force=True)
    assert (out / "held_out.jsonl").read_bytes() == before
    assert prepare(file, out, Recipe("glaive"), force=True)["accepted"] == 30
    assert not (out / "held_out.jsonl").exists()


def test_a_run_directory_and_a_file_are_no_output(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [GLAIVE])
    (tmp_path / "settings.json").touch()
    with pytest.raises(UsageError, match="directory of a run"):
        prepare(file, tmp_path, Recipe("glaive"), force=True)
    with pytest.raises(UsageError, match="is a file"):
        prepare(file, file, Recipe("glaive"))
    with pytest.raises(UsageError, match="cannot be made"):
        prepare(file, file / "out", Recipe("glaive"))


def seatrial(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "seatrial", "data", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def test_the_command_prints_json_and_nothing_else_to_stdout(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.jsonl", [GLAIVE, {"a": 1}])
    done = seatrial("prepare", "--source", "glaive", "--in", file, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["rows"], printed["accepted"], printed["rejected"]) == (2, 1, {"wrong_shape": 1})
    assert printed["share_with_call"] == pytest.approx(1 / 3)
    done = seatrial("prepare", "--source", "glaive", "--in", file, "--out", tmp_path / "out", "--force")
    assert (done.returncode, done.stdout) == (0, "")
    assert "wrong_shape" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--in", "nosuch.jsonl", "--out", "out"], "nosuch.jsonl: no such file or folder"),
        (["--in", "owner/nosuch", "--out", "out"], "owner/nosuch: not in the local cache"),
        (["--in", "in.txt", "--out", "out"], "in.txt:1: not JSON"),
        (["--in", "in.txt", "--out", "out", "--source", "glaiv"], "--source glaiv: unknown format; choose auto"),
        (["--in", "in.txt", "--out", "out", "--dedup", "fuzzy"], "--dedup fuzzy: choose none, exact, near"),
        (["--in", "in.txt", "--out", "out", "--benchmark", "nosuch"], "nosuch: no such file or folder"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("not json\n")
    done = seatrial("prepare", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_full_disk_leaves_no_half_of_anything(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    file, out = write_lines(tmp_path / "in.jsonl", glaive_rows(20)), tmp_path / "out"
    request.getfixturevalue("full_disk")
    with pytest.raises(UsageError, match=f"--out {out}: cannot be written: File too large"):
        prepare(file, out, Recipe("glaive"))
    assert list(out.iterdir()) == []
