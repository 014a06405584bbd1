"""Records outlast a full disk."""

import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.records import append_jsonl
from seatrial.rundir import RunDir


def test_records_wait_until_there_is_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """/dev/full is the kernel's own disk without room."""
    run = RunDir(tmp_path)
    run.events.symlink_to("/dev/full")
    run.event("one")
    run.event("two")
    assert "events.jsonl: No space left on device; 2 records wait" in capsys.readouterr().err
    run.events.unlink()
    run.append(run.metrics, {"step": 3})
    run.event("four")
    assert [event["event"] for event in run.read_events()] == ["one", "two", "four"]
    assert run.read_metrics() == [{"step": 3}]


def test_half_a_line_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    script = (
        "import resource, sys; from pathlib import Path; from seatrial.records import append_jsonl\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "for number in range(2): append_jsonl(Path(sys.argv[1]), {'number': number, 'text': 'x' * 40})"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert "No space left on device" in done.stderr
    append_jsonl(path, {"number": 2})
    assert [line[:12] for line in path.read_text().splitlines()] == ['{"number": 0', '{"number": 2']


def test_other_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RunDir(tmp_path / "absent").event("one")


def test_a_launcher_ends_with_what_its_own_command_left(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert run.exit_code(0, None) == 0
    assert run.exit_code(1, None) == 70, "torchrun says 1 of everything"
    assert run.exit_code(-9, None) == 70
    run.write_outcome("preempted", "saved step 3", 75)
    before = run.read_outcome()
    assert run.exit_code(1, None) == 75
    assert run.exit_code(1, before) == 70, "an outcome that was there before is not that of this command"
    run.write_outcome("failed", "attempt after attempt", 78)
    assert run.exit_code(1, before) == 78
