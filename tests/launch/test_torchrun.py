"""The script that is started by hand."""

import pytest

from seatrial.launch.torchrun import render_torchrun
from tests.launch import golden_files
from tests.launch.jobs import CONFIG, training


@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_golden(nodes: int) -> None:
    excluded = ("worker-3",) if nodes == 64 else ()
    rendered = render_torchrun(training(nodes), CONFIG, excluded)
    golden_files.compare(f"torchrun-{nodes}", rendered)
    assert len(rendered.submit) == nodes


def test_nodes_may_come_and_go() -> None:
    ((_, script),) = render_torchrun(training(4, min_nodes=1), CONFIG).files
    assert "export PET_NNODES=1:4" in script
    assert "PET_RDZV_ENDPOINT=$PET_MASTER_ADDR:$PET_MASTER_PORT" in script
