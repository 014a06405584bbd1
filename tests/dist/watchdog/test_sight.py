"""What ranks leave in memory is taken away when they are done, and nobody else's."""

import os
import subprocess
import sys
from pathlib import Path

from seatrial.dist.heartbeat import Heartbeat, heartbeat_directory, heartbeat_file, opened_heartbeat
from seatrial.dist.watchdog.farewell import leave_error
from seatrial.dist.watchdog.sight import LocalRanks, recorder_prefix, stack_file


def leave(run: Path, rank: int, generation: str, pid: int) -> None:
    with opened_heartbeat(run, rank, 4, generation, "node") as memory:
        Heartbeat(memory).phase("done")
    file = heartbeat_file(run, rank)
    content = bytearray(file.read_bytes())
    content[16:20] = pid.to_bytes(4, "little")
    file.write_bytes(content)
    stack_file(run, rank).touch()
    Path(f"{recorder_prefix(run)}{rank}").touch()


def dead() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_ranks_that_are_done_leave_nothing(tmp_path: Path) -> None:
    """Nor do those of an earlier attempt, which was larger, and failed."""
    for rank in range(2):
        leave(tmp_path, rank, "2-bb", os.getpid())
    leave(tmp_path, 3, "1-aa", dead())
    leave_error(tmp_path, "1-aa", 3, RuntimeError("lost"))
    LocalRanks(tmp_path, range(2), "2-bb").forget()
    assert not heartbeat_directory(tmp_path).exists()


def test_those_that_live_keep_what_is_theirs(tmp_path: Path) -> None:
    leave(tmp_path, 0, "2-bb", os.getpid())
    leave(tmp_path, 1, "3-cc", os.getpid())  # a later attempt has begun
    leave(tmp_path, 2, "2-bb", os.getpid())  # of another node of this machine
    LocalRanks(tmp_path, range(2), "2-bb").forget()
    left = {path.name for path in heartbeat_directory(tmp_path).iterdir()}
    assert left == {name for rank in (1, 2) for name in (f"rank-0000{rank}", f"rank-0000{rank}.stack", f"nccl-{rank}")}
