"""Which of how many nodes this is, from the environment of launchers."""

import pytest

from seatrial.accept.cluster.place import Place, find_place, first_host
from seatrial.errors import UsageError

SLURM = {
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "2",
    "SLURM_NODEID": "2",
    "SLURM_NNODES": "3",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NODELIST": "gpu-[003-005]",
}
TORCHRUN = {
    "LOCAL_WORLD_SIZE": "8",
    "WORLD_SIZE": "16",
    "RANK": "8",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "n0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


def test_alone_without_a_launcher() -> None:
    assert find_place({}) is None
    assert find_place({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is None


def test_srun_starts_one_process_or_more_on_each_node() -> None:
    place = find_place(SLURM)
    assert place == Place(node=2, nodes=3, leads=True, address="gpu-003", port=23456, hosts_store=False)
    first = find_place(SLURM | {"SLURM_NODEID": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "99"})
    assert first == Place(node=0, nodes=3, leads=True, address="10.0.0.1", port=99, hosts_store=True)
    second = find_place(SLURM | {"SLURM_LOCALID": "3"})
    assert second is not None and not second.leads


def test_torchrun_keeps_the_store_itself() -> None:
    place = find_place(TORCHRUN)
    assert place == Place(node=1, nodes=2, leads=True, address="n0", port=29500, hosts_store=False)
    own = find_place(TORCHRUN | {"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"})
    assert own is not None and own.hosts_store
    other = find_place(TORCHRUN | {"RANK": "11", "LOCAL_RANK": "3"})
    assert other is not None and not other.leads and other.node == 1


def test_half_an_environment_is_refused() -> None:
    with pytest.raises(UsageError, match="MASTER_ADDR is not set"):
        find_place({name: value for name, value in TORCHRUN.items() if name != "MASTER_ADDR"})


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("gpu-003", "gpu-003"),
        ("gpu-003,gpu-009", "gpu-003"),
        ("gpu-[003-006,9],login", "gpu-003"),
        ("gpu-[7,9]", "gpu-7"),
        ("a,gpu-[7,9]", "a"),
        ("rack1-[02-03]-ib", "rack1-02-ib"),
    ],
)
def test_the_first_host_of_a_list(nodelist: str, host: str) -> None:
    assert first_host(nodelist) == host
