"""The file system of the output directory: room, durable writes, fsync, and whether it returns what was written."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from seatrial.accept import cpu_limits
from seatrial.accept.check import (
    MIN_SAMPLES,
    Check,
    Finding,
    Judgement,
    Request,
    conclude,
    judge_rate,
    measurement,
    percentile,
)
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limits
from seatrial.hardware import GB, GIB
from seatrial.records import Measurement, Verdict

MIB = 2**20


class SpaceFacts(Facts):
    """``free_inodes`` is None on file systems that do not count them."""

    directory: str
    total_gib: float
    free_gib: float
    free_inodes: int | None


def measure_space(request: Request) -> SpaceFacts:
    usage, system = shutil.disk_usage(request.directory), os.statvfs(request.directory)
    return SpaceFacts(
        directory=str(request.directory),
        total_gib=usage.total / GIB,
        free_gib=usage.free / GIB,
        free_inodes=system.f_favail if system.f_files else None,
    )


def judge_space(facts: SpaceFacts, limits: Limits) -> Judgement:
    if not 0 <= facts.free_gib <= facts.total_gib or not facts.total_gib > 0:
        nonsense = f"{facts.directory}: {facts.free_gib:g} GiB free of {facts.total_gib:g} makes no sense"
        return conclude([(Verdict.INCONCLUSIVE, nonsense)])
    finding: Finding
    if facts.free_gib == 0:
        finding = (Verdict.FAIL, f"{facts.directory}: the file system is full")
    else:
        finding = limits.of(cpu_limits.FREE_DISK).judge(facts.free_gib, facts.directory)
    findings = [finding]
    if facts.free_inodes is not None and facts.free_inodes <= 0:
        findings.append((Verdict.FAIL, f"{facts.directory}: no free inode, so no file can be made"))
    where = facts.directory
    return conclude(
        findings, [Measurement(name="free space", value=facts.free_gib, unit="GiB", n=1, spread=0.0, where=where)]
    )


FSYNC_BYTES = 4096
MAX_FSYNCS = 20_000


class DiskFacts(Facts):
    """``wrong_files``: files that did not read back as written. Reads may come from caches below the file system."""

    directory: str
    file_bytes: int
    write_gb_per_s: tuple[float, ...]
    read_gb_per_s: tuple[float, ...]
    fsync_seconds: tuple[float, ...]
    wrong_files: int


def measure_disk(request: Request) -> DiskFacts:
    """Files are written, fsynced, dropped from the page cache, read and compared; then small appends with fsync."""
    with tempfile.TemporaryDirectory(prefix=".seatrial-storage-", dir=request.directory) as scratch:
        path = Path(scratch) / "probe"
        payload = os.urandom(8 * MIB)
        first_s = durable_write(path, payload)
        files_bytes = len(payload) / first_s * request.seconds / 2
        file_bytes = int(min(max(files_bytes / MIN_SAMPLES, 8 * MIB), 256 * MIB))
        payload = os.urandom(file_bytes)
        writes: list[float] = []
        reads: list[float] = []
        wrong = 0
        end = time.perf_counter() + request.seconds * 0.7
        while len(writes) < MIN_SAMPLES or time.perf_counter() < end:
            writes.append(durable_write(path, payload))
            seconds, found = uncached_read(path, file_bytes)
            reads.append(seconds)
            wrong += found != payload
        fsyncs = _fsync_seconds(Path(scratch) / "appended", request.seconds * 0.3)
    return DiskFacts(
        directory=str(request.directory),
        file_bytes=file_bytes,
        write_gb_per_s=tuple(file_bytes / seconds / GB for seconds in writes),
        read_gb_per_s=tuple(file_bytes / seconds / GB for seconds in reads),
        fsync_seconds=tuple(fsyncs),
        wrong_files=wrong,
    )


def durable_write(path: Path, payload: bytes) -> float:
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for offset in range(0, len(payload), 8 * MIB):
            file.write(memoryview(payload)[offset : offset + 8 * MIB])
        os.fsync(file.fileno())
    return time.perf_counter() - start


def uncached_read(path: Path, size: int) -> tuple[float, bytearray]:
    buffer = bytearray(size)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        done = 0
        while count := file.readinto(memoryview(buffer)[done : done + 8 * MIB]):
            done += count
        return time.perf_counter() - start, buffer


def _fsync_seconds(path: Path, seconds: float) -> list[float]:
    durations: list[float] = []
    block = os.urandom(FSYNC_BYTES)
    end = time.perf_counter() + seconds
    with path.open("wb", buffering=0) as file:
        while len(durations) < MIN_SAMPLES or (time.perf_counter() < end and len(durations) < MAX_FSYNCS):
            start = time.perf_counter()
            file.write(block)
            os.fsync(file.fileno())
            durations.append(time.perf_counter() - start)
    return durations


def judge_disk(facts: DiskFacts, limits: Limits) -> Judgement:
    where = facts.directory
    numbers = [
        measurement("durable write", facts.write_gb_per_s, "GB/s", where),
        measurement("read", facts.read_gb_per_s, "GB/s", where),
        measurement("fsync of 4 KiB", facts.fsync_seconds, "s", where),
    ]
    if min(len(facts.read_gb_per_s), len(facts.fsync_seconds)) < MIN_SAMPLES or facts.wrong_files < 0:
        return conclude([(Verdict.INCONCLUSIVE, f"{where}: too few reads or fsyncs were timed")], numbers)
    if not all(0 < value < float("inf") for value in (*facts.read_gb_per_s, *facts.fsync_seconds)):
        return conclude([(Verdict.INCONCLUSIVE, f"{where}: a timing is not a number above zero")], numbers)
    findings = [judge_rate(limits.of(cpu_limits.STORAGE_WRITE), facts.write_gb_per_s, where)]
    if facts.wrong_files:
        count = len(facts.read_gb_per_s)
        findings.append((Verdict.FAIL, f"{where}: {facts.wrong_files} of {count} files did not read back as written"))
    p99_ms = percentile(facts.fsync_seconds, 99) * 1000
    recorded = f"read {percentile(facts.read_gb_per_s, 50):.2g} GB/s, fsync p99 {p99_ms:.2g} ms"
    findings.append((Verdict.SKIPPED, f"{recorded} (recorded, not judged: caches and contracts differ)"))
    return conclude(findings, numbers)


CHECKS = (
    Check(
        name="storage.space",
        question="Is there room for checkpoints where results are written?",
        remedy="free space, or choose another directory with --out",
        facts=SpaceFacts,
        measure=measure_space,
        judge=judge_space,
        limits=(cpu_limits.FREE_DISK,),
    ),
    Check(
        name="storage.disk",
        question="Are files written durably, fast enough, and read back as they were written?",
        remedy="choose another disk with --out, or ask for the disk type that was ordered; wrong bytes: replace it",
        facts=DiskFacts,
        measure=measure_disk,
        judge=judge_disk,
        limits=(cpu_limits.STORAGE_WRITE,),
        share=1.0,
    ),
)
