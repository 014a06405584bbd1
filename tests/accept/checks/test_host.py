"""The host's judges on what broken, narrow and odd machines report."""

import os
from dataclasses import dataclass
from typing import Any

import pytest

from seatrial.accept.catalogue import find
from seatrial.accept.check import Request, judge_recorded
from seatrial.accept.checks import cpu, host, mounts, rdma, storage
from seatrial.accept.limits import Limits
from seatrial.records import Verdict

from ..healthy import HEALTHY, MIB

GIB = 2**30


@dataclass(frozen=True)
class Case:
    check: str
    changes: dict[str, Any]
    verdict: Verdict
    says: str


def ports(index: int, **changes: Any) -> dict[str, Any]:
    every = HEALTHY["fabric.rdma"].model_dump(mode="json")["ports"]
    every[index] |= changes
    return {"ports": every}


def grown(index: int, **counters: int) -> dict[str, Any]:
    every = HEALTHY["fabric.rdma_errors"].model_dump(mode="json")["after"]
    every[f"mlx5_{index} port 1"] |= counters
    return {"after": every}


def mount(**changes: Any) -> dict[str, Any]:
    (one,) = HEALTHY["storage.mounts"].model_dump(mode="json")["mounts"]
    return {"mounts": [one | changes]}


CASES = [
    Case("host.cpu", {"quota_cores": 0.5}, Verdict.WARN, "0.5 of 8 cores"),
    Case("host.cpu", {"quota_cores": 8.0}, Verdict.PASS, "8 of 8"),
    Case("host.cpu", {"usable_cores": 0}, Verdict.INCONCLUSIVE, "makes no sense"),
    Case("host.cpu", {"usable_cores": 2}, Verdict.PASS, "2 of 8"),
    Case("host.memory", {"available_gib": 0.4}, Verdict.FAIL, "below the floor"),
    Case("host.memory", {"limit_gib": 0.5}, Verdict.FAIL, "0.5 GiB"),
    Case("host.memory", {"limit_gib": 1.5}, Verdict.WARN, "1.5 GiB"),
    Case("host.memory", {"available_gib": 80.0}, Verdict.INCONCLUSIVE, "makes no sense"),
    Case("host.limits", {"shm_gib": 0.0625}, Verdict.FAIL, "/dev/shm size 0.0625 GiB is below the floor of 1"),
    Case("host.limits", {"shm_gib": 0.0625, "gpus": 0}, Verdict.WARN, "there is no GPU"),
    Case("host.limits", {"shm_gib": 0.0}, Verdict.INCONCLUSIVE, "not a measurement"),
    Case("host.limits", {"memlock_gib": 0.0625}, Verdict.FAIL, "8 RDMA device(s)"),
    Case("host.limits", {"memlock_gib": 0.0625, "rdma_devices": 0}, Verdict.PASS, "recorded, not judged"),
    Case("host.limits", {"open_files": 1024}, Verdict.FAIL, "below the floor of 2048"),
    Case("host.limits", {"open_files": 3000}, Verdict.WARN, "below the expected 4096"),
    Case("host.limits", {"open_files": None}, Verdict.PASS, "unlimited"),
    Case("host.clock", {"source": "hpet"}, Verdict.WARN, "hpet"),
    Case("host.clock", {"source": None}, Verdict.PASS, "unknown clock source"),
    Case("host.clock", {"steps_ns": [60, 60, -5, 60, 60]}, Verdict.FAIL, "backwards 1 times"),
    Case("host.clock", {"steps_ns": [0] * 9}, Verdict.INCONCLUSIVE, "stood still"),
    Case("host.system", {"kernel": "4.4.0"}, Verdict.WARN, "before 5.5"),
    Case("host.system", {"kernel": "5.4.0-1103-azure"}, Verdict.WARN, "before 5.5"),
    Case("host.system", {"kernel": "mystery"}, Verdict.INCONCLUSIVE, "cannot be read"),
    Case("host.memory_bandwidth", {"copy_gb_per_s": [0.9] * 5}, Verdict.FAIL, "below the floor of 0.6"),
    Case("host.memory_bandwidth", {"copy_gb_per_s": [0.9] * 5, "others_share": 0.5}, Verdict.INCONCLUSIVE, "used 50%"),
    Case("host.memory_bandwidth", {"copy_gb_per_s": [900.0] * 5}, Verdict.INCONCLUSIVE, "physical bound"),
    Case("host.memory_bandwidth", {"copy_gb_per_s": [37.0] * 4}, Verdict.INCONCLUSIVE, "4 samples"),
    Case("host.memory_bandwidth", {"cache_bytes": 512 * MIB}, Verdict.INCONCLUSIVE, "caches were measured"),
    Case("host.gemm", {"fp32_wrong": 1}, Verdict.FAIL, "fp32: 1 of 4194304 elements"),
    Case("host.gemm", {"bf16_wrong": 3}, Verdict.FAIL, "bf16: 3"),
    Case("host.gemm", {"isa": None}, Verdict.INCONCLUSIVE, "instruction set is unknown"),
    Case("host.gemm", {"fp32_gflop_per_s": [20.0] * 5}, Verdict.FAIL, "below the floor of 16"),
    Case("host.gemm", {"fp32_gflop_per_s": [9000.0] * 5}, Verdict.INCONCLUSIVE, "physical bound"),
    Case("host.gemm", {"bf16_gflop_per_s": None, "bf16_wrong": None}, Verdict.PASS, "no bf16 instructions"),
    Case("host.same_bits", {"tallies": {"0": {"7": 5}, "1": {"7": 4, "8": 1}}}, Verdict.FAIL, "core 1"),
    Case("host.same_bits", {"tallies": {"0": {"7": 5}, "1": {"8": 5}}}, Verdict.FAIL, "no majority"),
    Case("host.same_bits", {"tallies": {"0": {"7": 2}}}, Verdict.INCONCLUSIVE, "fewer than 5"),
    Case("host.same_bits", {"tallies": {}}, Verdict.INCONCLUSIVE, "fewer than 5"),
    Case("storage.space", {"free_gib": 0.0}, Verdict.FAIL, "full"),
    Case("storage.space", {"free_gib": 0.5}, Verdict.FAIL, "below the floor"),
    Case("storage.space", {"free_inodes": 0}, Verdict.FAIL, "no free inode"),
    Case("storage.space", {"free_inodes": None}, Verdict.PASS, "500 GiB"),
    Case("storage.space", {"total_gib": 0.0}, Verdict.INCONCLUSIVE, "makes no sense"),
    Case("storage.disk", {"wrong_files": 1}, Verdict.FAIL, "1 of 5 files did not read back"),
    Case("storage.disk", {"write_gb_per_s": [0.01] * 5}, Verdict.FAIL, "below the floor of 0.03"),
    Case("storage.disk", {"fsync_seconds": [0.0] * 5}, Verdict.INCONCLUSIVE, "not a number above zero"),
    Case("fabric.rdma", {"ports": []}, Verdict.SKIPPED, "no RDMA port"),
    Case("fabric.rdma", ports(2, state="1: DOWN", physical="2: Polling"), Verdict.FAIL, "mlx5_2 port 1 is 1: DOWN"),
    Case("fabric.rdma", ports(2, state="1: DOWN", physical="3: Disabled"), Verdict.WARN, "mlx5_2 port 1 is 1: DOWN"),
    Case("fabric.rdma", ports(5, rate_gbit=200.0), Verdict.FAIL, "mlx5_5 port 1 runs at 200 Gbit/s, its equals at 400"),
    Case("fabric.rdma_errors", grown(3, link_downed=3), Verdict.FAIL, "mlx5_3 port 1: link_downed grew by 2"),
    Case("fabric.rdma_errors", grown(3, symbol_error=9), Verdict.WARN, "mlx5_3 port 1: symbol_error grew by 5"),
    Case("fabric.rdma_errors", {"before": None}, Verdict.INCONCLUSIVE, "not read before the load"),
    Case("fabric.rdma_errors", {"after": {}}, Verdict.FAIL, "mlx5_0 port 1 is gone"),
    Case("storage.mounts", {"mounts": []}, Verdict.SKIPPED, "no mount was named"),
    Case("storage.mounts", mount(error="No space left on device"), Verdict.FAIL, "/shared: cannot be written: No"),
    Case("storage.mounts", mount(wrong_files=2), Verdict.FAIL, "/shared: 2 files did not read back"),
    Case("storage.mounts", mount(checkpoint_gb_per_s=[0.01] * 5), Verdict.FAIL, "/shared, checkpoint: durable"),
    Case("storage.mounts", mount(writer_gb_per_s=[0.01] * 5), Verdict.FAIL, "/shared, 8 writers: durable"),
    Case("storage.mounts", mount(fsync_seconds=[0.004] * 40 + [3.0]), Verdict.WARN, "fsync stalls: p99 3 s"),
    Case("storage.disk", {"write_gb_per_s": [4000.0] * 5}, Verdict.INCONCLUSIVE, "physical bound"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.changes}")
def test_judges(case: Case) -> None:
    facts = HEALTHY[case.check].model_dump(mode="json") | case.changes
    judgement = judge_recorded(find(case.check), facts, Limits())
    assert judgement.verdict is case.verdict, judgement.reason
    assert case.says in judgement.reason


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        (("max 100000\n", None, None), None),
        (("150000 100000\n", None, None), 1.5),
        ((None, "-1\n", "100000\n"), None),
        ((None, "400000\n", "100000\n"), 4.0),
        ((None, None, None), None),
    ],
)
def test_cgroup_quota(files: tuple[str | None, str | None, str | None], cores: float | None) -> None:
    assert host.quota_cores(*files) == cores


def test_meminfo() -> None:
    text = "MemTotal:       32914096 kB\nMemAvailable:   31000000 kB\nHugePages_Total:       0\nSwapTotal: 0 kB\n"
    assert host.parse_meminfo(text) == pytest.approx(
        {"MemTotal": 32914096 / 2**20, "MemAvailable": 31000000 / 2**20, "SwapTotal": 0}
    )


def test_cpu_flags_on_x86_and_arm() -> None:
    assert cpu.cpu_flags("processor : 0\nflags\t\t: fpu fma avx512f\n") == {"fpu", "fma", "avx512f"}
    assert cpu.cpu_flags("processor : 0\nFeatures : fp asimd bf16\n") == {"fp", "asimd", "bf16"}
    assert cpu.cpu_flags("") == frozenset()


def test_busy_time_counts_steal_but_not_idle_or_guests() -> None:
    ticks = 100 + 10 + 20 + 3 + 4 + 5
    stat = "cpu  100 10 20 9000 50 3 4 5 77 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert cpu.busy_cpu_seconds(stat) * os.sysconf("SC_CLK_TCK") == ticks


def test_storage_reads_back_what_it_wrote(tmp_path: Any) -> None:
    payload = bytes(range(256)) * 4096
    assert storage.durable_write(tmp_path / "f", payload) > 0
    seconds, found = storage.uncached_read(tmp_path / "f", len(payload))
    assert seconds > 0 and found == payload


def test_mounts_are_measured_and_those_that_cannot_be_written_are_named(tmp_path: Any) -> None:
    request = Request(check="storage.mounts", seconds=0.4, directory=tmp_path, mounts=(tmp_path, tmp_path / "gone"))
    good, gone = mounts.measure_mounts(request).mounts
    assert good.error == "" and good.wrong_files == 0
    assert min(len(good.metadata_seconds), len(good.fsync_seconds)) >= 50
    assert min(len(good.writer_gb_per_s), len(good.checkpoint_gb_per_s)) >= 5
    assert gone.error == "No such file or directory"
    assert list(tmp_path.iterdir()) == []


def test_ports_are_read_as_the_kernel_shows_them(tmp_path: Any) -> None:
    port = tmp_path / "mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    texts = {"link_layer": "InfiniBand", "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    for name, text in texts.items():
        (port / name).write_text(text + "\n")
    (port / "counters/link_downed").write_text("2\n")
    (found,) = rdma.read_ports(tmp_path)
    assert (found.name, found.rate_gbit) == ("mlx5_0 port 1", 400.0)
    assert rdma.read_counters(tmp_path) == {"mlx5_0 port 1": {"link_downed": 2}}
    assert rdma.read_ports(tmp_path / "none") == ()
