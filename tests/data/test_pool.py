"""A pool gives what a loop gives, in the same order."""

import os
import signal
from pathlib import Path

import pytest

from seatrial.data import pool
from seatrial.data.conversation import Conversation, Message, encode
from seatrial.errors import SeatrialError, UsageError


def describe(shared: str, number: int, row: Conversation) -> str:
    return f"{shared} {number} {row.id}"


@pytest.fixture(params=["alone", "pool"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files, worked on as the large ones are."""
    monkeypatch.setattr(pool, "usable_cpus", lambda: 2 if request.param == "pool" else 1)
    monkeypatch.setattr(pool, "_BYTES_WORTH_A_POOL", 0)
    monkeypatch.setattr(pool, "_CHUNK_ROWS", 10)


def write(folder: Path, rows: int) -> Path:
    lines = [encode(Conversation(f"id{i}", "test", (Message("user", "x"),))) for i in range(1, rows + 1)]
    (folder / "records.jsonl").write_bytes(b"".join(lines))
    return folder


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("rows", [0, 1, 10, 123])
def test_results_come_numbered_in_the_order_of_the_rows(rows: int, tmp_path: Path) -> None:
    found = list(pool.map_records(describe, "row", write(tmp_path, rows)))
    assert found == [f"row {i} id{i}" for i in range(1, rows + 1)]


def be_killed(shared: str, number: int, row: Conversation) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_ends_the_work_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "usable_cpus", lambda: 2)
    monkeypatch.setattr(pool, "_BYTES_WORTH_A_POOL", 0)
    with pytest.raises(SeatrialError, match="a worker process died, most often for lack of memory"):
        list(pool.map_records(be_killed, "row", write(tmp_path, 5)))


@pytest.mark.usefixtures("processes")
def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    with (write(tmp_path, 35) / "records.jsonl").open("ab") as file:
        file.write(b"oops\n")
    with pytest.raises(UsageError, match=r"records\.jsonl:36: not a seatrial record"):
        list(pool.map_records(describe, "row", tmp_path))
