"""The host as the kernel describes it: cores, memory, limits, clock, kernel. Nothing here needs torch."""

import itertools
import os
import platform
import resource
import shutil
import time
from pathlib import Path

from seatrial.accept import cpu_limits
from seatrial.accept.check import MIN_SAMPLES, Check, Finding, Judgement, Request, conclude, measurement, percentile
from seatrial.accept.facts import Facts
from seatrial.accept.inventory import in_container, take_inventory
from seatrial.accept.limits import Limits
from seatrial.hardware import GIB, cpu_model, node_name, usable_cpus
from seatrial.records import Measurement, Verdict

CGROUP = Path("/sys/fs/cgroup")


def one(name: str, value: float, unit: str) -> Measurement:
    """A number that is read, not sampled."""
    return Measurement(name=name, value=value, unit=unit, n=1, spread=0.0, where=node_name())


class CpuFacts(Facts):
    """``quota_cores`` is None when no cgroup limits the processor time."""

    model: str
    usable_cores: int
    machine_cores: int
    numa_nodes: int
    quota_cores: float | None


def quota_cores(cpu_max: str | None, quota_us: str | None, period_us: str | None) -> float | None:
    """Cores a cgroup grants: ``cpu.max`` of version 2, or the two files of version 1; None for no limit."""
    if cpu_max is not None:
        quota, _, period = cpu_max.strip().partition(" ")
        return None if quota == "max" else int(quota) / int(period)
    if quota_us is not None and period_us is not None and int(quota_us) > 0:
        return int(quota_us) / int(period_us)
    return None


def measure_cpu(request: Request) -> CpuFacts:
    return CpuFacts(
        model=cpu_model(),
        usable_cores=usable_cpus(),
        machine_cores=os.cpu_count() or 0,
        numa_nodes=max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))),
        quota_cores=quota_cores(
            _read(CGROUP / "cpu.max"),
            _read(CGROUP / "cpu/cpu.cfs_quota_us"),
            _read(CGROUP / "cpu/cpu.cfs_period_us"),
        ),
    )


def judge_cpu(facts: CpuFacts, limits: Limits) -> Judgement:
    described = f"{facts.model}: {facts.usable_cores} of {facts.machine_cores} cores, {facts.numa_nodes} NUMA node(s)"
    if not facts.model or not 1 <= facts.usable_cores <= facts.machine_cores:
        finding: Finding = (Verdict.INCONCLUSIVE, f"the kernel's account makes no sense: {described}")
    elif facts.quota_cores is not None and facts.quota_cores <= 0:
        finding = (Verdict.INCONCLUSIVE, f"{described}; a quota of {facts.quota_cores:g} cores makes no sense")
    elif facts.quota_cores is not None and facts.quota_cores < facts.usable_cores:
        quota = f"a cgroup quota grants the time of {facts.quota_cores:g} of {facts.usable_cores} cores"
        finding = (Verdict.WARN, f"{quota}: a program that starts a thread on each is stopped again and again")
    else:
        finding = (Verdict.PASS, described)
    return conclude([finding], [one("usable cores", facts.usable_cores, "cores")])


class MemoryFacts(Facts):
    """GiB. ``limit_gib`` is None when no cgroup limits the memory."""

    total_gib: float
    available_gib: float
    swap_gib: float
    limit_gib: float | None


def parse_meminfo(text: str) -> dict[str, float]:
    """``/proc/meminfo`` in GiB by name; lines without a size in kB are left out."""
    rows = (line.replace(":", " ").split() for line in text.splitlines())
    return {row[0]: int(row[1]) * 1024 / GIB for row in rows if len(row) == 3 and row[2] == "kB"}


def measure_memory(request: Request) -> MemoryFacts:
    info = parse_meminfo(Path("/proc/meminfo").read_text())
    limit = _read(CGROUP / "memory.max") or _read(CGROUP / "memory/memory.limit_in_bytes")
    limit_gib = int(limit) / GIB if limit and limit.strip().isdigit() else None
    return MemoryFacts(
        total_gib=info["MemTotal"],
        available_gib=info["MemAvailable"],
        swap_gib=info["SwapTotal"],
        limit_gib=None if limit_gib is None or limit_gib > info["MemTotal"] else limit_gib,
    )


def judge_memory(facts: MemoryFacts, limits: Limits) -> Judgement:
    if not 0 < facts.available_gib <= facts.total_gib:
        nonsense = f"{facts.available_gib:g} GiB available of {facts.total_gib:g} makes no sense"
        return conclude([(Verdict.INCONCLUSIVE, nonsense)])
    reach = min(facts.available_gib, facts.limit_gib or facts.available_gib)
    findings = [limits.of(cpu_limits.FREE_MEMORY).judge(reach, node_name())]
    if facts.limit_gib is not None:
        text = f"a cgroup limits memory to {facts.limit_gib:.1f} of {facts.total_gib:.1f} GiB"
        findings.append((Verdict.SKIPPED, f"{text} (recorded, not judged)"))
    numbers = [("total memory", facts.total_gib), ("available memory", reach), ("swap", facts.swap_gib)]
    return conclude(findings, [one(name, value, "GiB") for name, value in numbers])


class LimitsFacts(Facts):
    """``memlock_gib`` and ``open_files`` are hard limits, None for unlimited."""

    open_files: int | None
    memlock_gib: float | None
    shm_gib: float
    rdma_devices: int
    gpus: int


def measure_limits(request: Request) -> LimitsFacts:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return LimitsFacts(
        open_files=None if files == resource.RLIM_INFINITY else files,
        memlock_gib=None if locked == resource.RLIM_INFINITY else locked / GIB,
        shm_gib=shutil.disk_usage("/dev/shm").total / GIB,
        rdma_devices=len(list(Path("/sys/class/infiniband").glob("*"))),
        gpus=take_inventory().gpus,
    )


def judge_limits(facts: LimitsFacts, limits: Limits) -> Judgement:
    where = node_name()
    verdict, shm = limits.of(cpu_limits.SHARED_MEMORY).judge(facts.shm_gib, where)
    if verdict is Verdict.FAIL and facts.gpus == 0:
        verdict, shm = Verdict.WARN, f"{shm} (NCCL would need it; there is no GPU)"
    findings: list[Finding] = [(verdict, shm)]
    if facts.open_files is None:
        findings.append((Verdict.PASS, "open files unlimited"))
    else:
        findings.append(limits.of(cpu_limits.OPEN_FILES).judge(facts.open_files, where))
    locked = "unlimited" if facts.memlock_gib is None else f"{facts.memlock_gib:.3g} GiB"
    if not facts.rdma_devices:
        findings.append((Verdict.SKIPPED, f"locked memory {locked} (recorded, not judged: no RDMA device)"))
    elif facts.memlock_gib is None:
        findings.append((Verdict.PASS, "locked memory unlimited"))
    else:
        needed = f"{facts.rdma_devices} RDMA device(s) register pinned memory"
        findings.append((Verdict.FAIL, f"locked memory is limited to {locked}, but {needed}"))
    return conclude(findings, [one("/dev/shm size", facts.shm_gib, "GiB")])


FAST_CLOCKS = frozenset({"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter", "timebase"})
CLOCK_READS = 2000


class ClockFacts(Facts):
    """``steps_ns``: differences of successive reads of the monotonic clock. ``source``: None where it is not shown."""

    source: str | None
    steps_ns: tuple[int, ...]


def measure_clock(request: Request) -> ClockFacts:
    reads = [time.monotonic_ns() for _ in range(CLOCK_READS)]
    source = _read(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
    steps = tuple(after - before for before, after in itertools.pairwise(reads))
    return ClockFacts(source=source.strip() if source else None, steps_ns=steps)


def judge_clock(facts: ClockFacts, limits: Limits) -> Judgement:
    if len(facts.steps_ns) < MIN_SAMPLES:
        return conclude([(Verdict.INCONCLUSIVE, f"{len(facts.steps_ns)} reads of the clock")])
    cost_ns = percentile(facts.steps_ns, 50)
    source = facts.source or "unknown clock source"
    shown = f"{source}, {cost_ns:.0f} ns a read"
    backward = sum(step < 0 for step in facts.steps_ns)
    if backward:
        finding: Finding = (Verdict.FAIL, f"{source}: the monotonic clock went backwards {backward} times")
    elif not any(facts.steps_ns):
        finding = (Verdict.INCONCLUSIVE, f"{source}: the clock stood still over {len(facts.steps_ns)} reads")
    elif facts.source is not None and facts.source not in FAST_CLOCKS:
        finding = (Verdict.WARN, f"{shown}: a clock that is read through a slow device distorts every timing")
    else:
        finding = (Verdict.PASS, shown)
    return conclude([finding], [measurement("clock read", facts.steps_ns, "ns", node_name())])


OLDEST_KERNEL = (5, 5)


class SystemFacts(Facts):
    kernel: str
    distribution: str
    glibc: str
    container: bool


def measure_system(request: Request) -> SystemFacts:
    os_release = _read(Path("/etc/os-release")) or ""
    names = [line.partition("=")[2].strip('"') for line in os_release.splitlines() if line.startswith("PRETTY_NAME=")]
    return SystemFacts(
        kernel=platform.release(),
        distribution=names[0] if names else "unknown",
        glibc=" ".join(platform.libc_ver()).strip() or "unknown",
        container=in_container(),
    )


def judge_system(facts: SystemFacts, limits: Limits) -> Judgement:
    place = "in a container" if facts.container else "not in a container"
    shown = f"Linux {facts.kernel}, {facts.distribution}, {facts.glibc}, {place}"
    numbers = facts.kernel.split("-")[0].split(".")
    if len(numbers) < 2 or not (numbers[0].isdigit() and numbers[1].isdigit()):
        return conclude([(Verdict.INCONCLUSIVE, f"the kernel's version {facts.kernel!r} cannot be read")])
    if (int(numbers[0]), int(numbers[1])) < OLDEST_KERNEL:
        return conclude([(Verdict.WARN, f"{shown}: processes are known to hang on kernels before 5.5")])
    return conclude([(Verdict.PASS, shown)])


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


CHECKS = (
    Check(
        name="host.cpu",
        question="May this process use every core that the machine shows?",
        remedy="raise or remove the CPU limit of the container or cgroup, or start fewer threads",
        facts=CpuFacts,
        measure=measure_cpu,
        judge=judge_cpu,
    ),
    Check(
        name="host.memory",
        question="Is there memory left to work in?",
        remedy="end what fills the memory, or raise the memory limit of the container",
        facts=MemoryFacts,
        measure=measure_memory,
        judge=judge_memory,
        limits=(cpu_limits.FREE_MEMORY,),
    ),
    Check(
        name="host.limits",
        question="Are shared memory, open files and locked memory wide enough for training?",
        remedy="start the container with --shm-size=1g --ulimit memlock=-1 --ulimit nofile=1048576",
        facts=LimitsFacts,
        measure=measure_limits,
        judge=judge_limits,
        limits=(cpu_limits.SHARED_MEMORY, cpu_limits.OPEN_FILES),
    ),
    Check(
        name="host.clock",
        question="Is the clock steady and cheap to read?",
        remedy="boot with clocksource=tsc, or ask the provider for a virtual machine with a stable clock",
        facts=ClockFacts,
        measure=measure_clock,
        judge=judge_clock,
    ),
    Check(
        name="host.system",
        question="Are kernel and C library recent enough?",
        remedy="boot Linux 5.5 or newer",
        facts=SystemFacts,
        measure=measure_system,
        judge=judge_system,
    ),
)
