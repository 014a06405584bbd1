"""How much memory may be taken for copies."""

from pathlib import Path

import pytest
import torch

from seatrial.dist.checkpoint import stage
from seatrial.dist.checkpoint.stage import Stage, free_memory_bytes
from seatrial.errors import ImpossibleConfiguration


def test_the_smaller_of_machine_and_control_group_counts(tmp_path: Path) -> None:
    meminfo, group = tmp_path / "meminfo", tmp_path / "cgroup"
    assert free_memory_bytes(meminfo, group) is None
    meminfo.write_text("MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable:    4000 kB\nHugePages_Total:       0\n")
    assert free_memory_bytes(meminfo, group) == 4_096_000
    group.mkdir()
    (group / "memory.max").write_text("max\n")
    assert free_memory_bytes(meminfo, group) == 4_096_000
    (group / "memory.max").write_text("3000000\n")
    (group / "memory.current").write_text("2500000\n")
    (group / "memory.stat").write_text("anon 1000000\ninactive_file 1200000\n")
    assert free_memory_bytes(meminfo, group) == 1_700_000


def test_more_than_there_is_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "free_memory_bytes", lambda: 10 * 2**30)
    with pytest.raises(ImpossibleConfiguration, match=r"the 8 ranks of this node need 16\.0 GiB, and 10\.0 are free"):
        Stage(2 * 2**30, torch.device("cpu"), ranks_here=8)


def test_parts_are_views_of_the_shared_bytes() -> None:
    memory = Stage(64, torch.device("cpu"), ranks_here=1)
    part = memory.part(8, (2, 2), torch.bfloat16)
    memory.copy([part, memory.part(16, (), torch.int64)], [torch.ones(2, 2, dtype=torch.bfloat16), torch.tensor(-1)])
    assert bytes(memory._memory[8:24]) == b"\x80\x3f" * 4 + b"\xff" * 8
    del part
    memory.close()
