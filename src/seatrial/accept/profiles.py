"""Named demands of people who sign clusters off: which checks answer each, and where a warning is not good enough."""

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.acceptance import Acceptance
from seatrial.errors import UsageError
from seatrial.records import CheckResult, Verdict, final_verdict


@dataclass(frozen=True)
class Ask:
    """One demand. ``answered_by``: names of checks; none where we do not answer it, and ``note`` then says why."""

    asked: str
    answered_by: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Profile:
    """``strict``: checks in which a WARN is a FAIL; ``required``: those that may not be SKIPPED on a machine with
    GPUs. Both with the reason why."""

    name: str
    source: str
    asks: tuple[Ask, ...]
    strict: dict[str, str]
    required: tuple[str, ...]

    @property
    def checks(self) -> tuple[str, ...]:
        """Of the ladder, in no order; those between nodes follow by themselves."""
        named = dict.fromkeys(name for ask in self.asks for name in ask.answered_by)
        return tuple(name for name in named if not name.startswith("cluster."))


_SAME_FLEET = "nodes of one contract are to be alike; what differs from its equals is found by no absolute floor"
CLUSTERMAX = Profile(
    name="clustermax",
    source="SemiAnalysis, ClusterMAX, expectations for health checks (clustermax.ai/expectations/health-checks)",
    asks=(
        Ask("GPUs that fell off the bus, XID 79 and its like", ("gpu.inventory", "gpu.kernel_log")),
        Ask("single- and double-bit ECC errors, remapped rows", ("gpu.memory_health", "gpu.memory_patterns")),
        Ask("PCIe generation, width and replays", ("gpu.pcie",), "replays show as a lower rate under load"),
        Ask("InfiniBand and Ethernet ports that flap", ("fabric.rdma", "fabric.rdma_errors")),
        Ask("stalled NCCL", ("collectives.nccl", "cluster.presence"), "a hang ends with the rank that hung"),
        Ask(
            "partition keys equal on all ports",
            (),
            "keys are the subnet manager's: ask it, or see /sys/class/infiniband",
        ),
        Ask("DCGM diagnostics", ("gpu.memory_patterns", "gpu.gemm_bf16", "gpu.same_bits"), "our own tests, not DCGM's"),
        Ask("host to device and back", ("gpu.pcie",)),
        Ask("sustained load, as gpu-burn and gpu-fryer", ("gpu.gemm_bf16", "gpu.gemm_fp8", "gpu.memory_bandwidth")),
        Ask("all-reduce within a node over NVLink", ("fabric.nvlink", "fabric.peer", "collectives.nccl")),
        Ask("all-reduce within a node over InfiniBand", (), "NCCL has no loopback by one port; nodes play each other"),
        Ask("bandwidth of each pair of nodes, both ways", ("cluster.blame",), "NCCL on GPU memory, on every rail"),
        Ask("silent data corruption, as TinyMeg2", ("host.same_bits", "gpu.same_bits", "training.replay")),
        Ask("training rate and a loss that is right", ("training.rate", "training.replay", "cluster.training")),
        Ask("nodes that fall behind their equals", ("cluster.fleet", "cluster.fingerprint")),
        Ask("weekly checks on idle nodes", (), "infra/accept schedules them under Slurm, Soperator and Kubernetes"),
    ),
    strict={
        "cluster.fleet": _SAME_FLEET,
        "cluster.fingerprint": _SAME_FLEET,
        "cluster.clock": "logs of a failure are ordered by clocks",
        "fabric.rdma": "a port that is down costs its share of every collective",
        "fabric.rdma_errors": "bits that arrive wrong are sent again, and one link slows all ranks",
        "gpu.memory_health": "remapped rows precede failures, and a reset is due before the hand-over, not after",
        "training.rate": "5 % below its neighbours is what a slow rank takes from all of them",
        "cluster.training": "5 % below its neighbours is what a slow rank takes from all of them",
    },
    required=("gpu.inventory", "gpu.memory_health", "gpu.pcie", "gpu.gemm_bf16", "gpu.same_bits", "fabric.rdma"),
)
PROFILES = (CLUSTERMAX,)


def find_profile(name: str) -> Profile:
    """Raises: UsageError: there is no such profile."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise UsageError(f"--profile {name}: no such profile; there is: {', '.join(one.name for one in PROFILES)}")


def under(profile: Profile, result: CheckResult) -> CheckResult:
    """The result as the profile grades it. Pure."""
    if result.verdict is Verdict.WARN and result.check in profile.strict:
        why = f"{result.reason} (a FAIL under {profile.name}: {profile.strict[result.check]})"
        return result.model_copy(update={"verdict": Verdict.FAIL, "reason": why})
    if result.verdict is Verdict.SKIPPED and result.check in profile.required:
        why = f"{result.reason} (INCONCLUSIVE under {profile.name}, which asks for it)"
        return result.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reason": why})
    return result


def answers(profile: Profile, acceptance: Acceptance) -> list[tuple[Ask, Verdict | None]]:
    """Each demand with the grade of the checks that answer it; None where none of them ran."""
    verdicts = {result.check: result.verdict for result in acceptance.checks}
    return [(ask, _grade([verdicts[name] for name in ask.answered_by if name in verdicts])) for ask in profile.asks]


def _grade(verdicts: Sequence[Verdict]) -> Verdict | None:
    if not verdicts:
        return None
    return Verdict.SKIPPED if set(verdicts) == {Verdict.SKIPPED} else final_verdict(verdicts)
