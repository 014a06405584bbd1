"""Answers of Slurm 22.05: sinfo's with fake GPUs, sbatch's to scripts that are wrong in one way each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.launch.preflight.slurm import judge_partition, judge_script, read_sinfo
from tests.launch.preflight.jobs import FAIL, PASS, WARN, answer, job

IDLE = "main*|up|1:00:00|2|idle|gpu:8|16|16000\n"
DRAINED = "main*|up|1:00:00|1|drained|gpu:8|16|16000\nmain*|up|1:00:00|1|idle|gpu:8|16|16000\n"
DOWN = "main*|down|1:00:00|2|idle|gpu:8|16|16000\n"
TWO_PARTITIONS = (
    "gpu|up|7-00:00:00|4|mixed|gpu:h100:8(S:0-1)|128|1600000\ncpu*|up|infinite|10|allocated|(null)|32+|64000+\n"
)
SILENT = "main*|up|infinite|2|idle*|gpu:8|16|16000\n"


def verdicts(text: str, **fields: object) -> list[object]:
    return [finding.verdict for finding in judge_partition(job(**{"time_limit_hours": 1.0, **fields}), answer(text))]


def test_a_partition_that_fits() -> None:
    assert verdicts(IDLE) == [PASS]
    assert verdicts(TWO_PARTITIONS, slurm={"partition": "gpu"}, time_limit_hours=100) == [PASS]


def test_gpus_of_a_kind_with_sockets_are_counted() -> None:
    gpu, cpu = read_sinfo(TWO_PARTITIONS)
    assert (gpu.gpus, gpu.time_limit_hours, gpu.is_default) == (8, 168.0, False)
    assert (cpu.gpus, cpu.time_limit_hours, cpu.is_default, cpu.cpus, cpu.memory_gib) == (0, None, True, 32, 62.5)
    assert read_sinfo("p|up|2-1|1|idle|gpu:a100:4,gpu:h100:2,nic:1|1|1\n")[0].gpus == 6


def test_an_unknown_partition_names_the_nearest() -> None:
    (finding,) = judge_partition(job(slurm={"partition": "gpus"}), answer(TWO_PARTITIONS))
    assert finding.verdict is FAIL
    assert finding.remedy == "did you mean gpu? set job.slurm.partition to one of cpu, gpu"


@pytest.mark.parametrize(
    ("sinfo", "fields", "verdict", "words"),
    [
        (IDLE, {"time_limit_hours": 2.0}, FAIL, "lets jobs run for 1 h, job.time_limit_hours is 2"),
        (IDLE, {"nodes": 3}, FAIL, "has 2 nodes that are large enough, job.nodes is 3"),
        (IDLE, {"gpus_per_node": 9}, FAIL, "its nodes have up to 8 GPUs"),
        (IDLE, {"memory_gib": 64}, FAIL, "16 GiB"),
        (IDLE, {"cpus_per_node": 17}, FAIL, "16 CPUs"),
        (TWO_PARTITIONS, {}, FAIL, "has 0 nodes"),
        (DRAINED, {}, WARN, "1 of 2 nodes can be used now"),
        (SILENT, {}, WARN, "0 of 2 nodes can be used now"),
        (DOWN, {}, FAIL, "is not up"),
        ("main|up|infinite|2|idle|gpu:8|16|16000\n", {}, FAIL, "Slurm has no default"),
    ],
)
def test_a_partition_that_does_not(sinfo: str, fields: dict[str, object], verdict: object, words: str) -> None:
    findings = list(judge_partition(job(**{"time_limit_hours": 1.0, **fields}), answer(sinfo)))
    found = [finding for finding in findings if finding.verdict is verdict and words in finding.reason]
    assert found, findings
    assert found[0].remedy


def test_no_slurm_here_says_where_to_go() -> None:
    (finding,) = judge_partition(job(), answer(stderr="sinfo: no such program", returncode=None))
    assert (finding.verdict, finding.reason) == (FAIL, "sinfo: no such program")
    assert "login node" in finding.remedy


@pytest.mark.parametrize(
    ("stderr", "code", "reason"),
    [
        (
            "sbatch: error: invalid partition specified: gpux\nallocation failure: Invalid partition name specified\n",
            1,
            "allocation failure: Invalid partition name specified",
        ),
        (
            "sbatch: unrecognized option '--wrong=9'\nTry \"sbatch --help\" for more information\n",
            255,
            "unrecognized option '--wrong=9'",
        ),
    ],
)
def test_what_sbatch_refuses(stderr: str, code: int, reason: str) -> None:
    finding = judge_script(answer(stderr=stderr, returncode=code, argv=("sbatch", "--test-only")))
    assert (finding.verdict, finding.reason) == (FAIL, reason)


def test_what_sbatch_would_start() -> None:
    said = "sbatch: Job 2 to start at 2026-11-21T10:12:01 using 2 processors on nodes node[1-2] in partition main\n"
    finding = judge_script(answer(stderr=said))
    assert finding.verdict is PASS
    assert finding.reason.startswith("Job 2 to start at")


@given(days=st.integers(0, 400), hours=st.integers(0, 23), minutes=st.integers(0, 59), seconds=st.integers(0, 59))
def test_time_limits_are_read(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}-{hours:02}:{minutes:02}:{seconds:02}" if days else f"{hours}:{minutes:02}:{seconds:02}"
    (kind,) = read_sinfo(f"p|up|{text}|1|idle|(null)|1|1\n")
    assert kind.time_limit_hours == pytest.approx(24 * days + hours + minutes / 60 + seconds / 3600)
