"""Every mount that the user names: metadata, fsync, many writers, a checkpoint as training writes it, and tails."""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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
from seatrial.accept.checks.storage import durable_write, uncached_read
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limits
from seatrial.hardware import GB
from seatrial.records import Measurement, Verdict

MIB = 2**20
SHARD_BYTES = 16 * MIB
WRITERS = 8
FILES_A_ROUND = 50
SLOW_TAIL = 20.0
"""p99 over median: a healthy disk's slowest fsync in a hundred takes a few times the median, a stalling one seconds."""
TAIL_SECONDS = 1.0
"""And so long at least, at which a training step waits noticeably."""


class MountFacts(Facts):
    """``error`` is empty, or why nothing was measured. Seconds are those of one operation each.

    ``metadata_seconds``: create, stat and unlink of an empty file. ``writer_gb_per_s``: all writers together, by round.
    ``checkpoint_gb_per_s``: shards, fsync, manifest, fsync of the directory, rename. ``wrong_files``: not read back as
    they were written.
    """

    directory: str
    error: str
    metadata_seconds: tuple[float, ...]
    fsync_seconds: tuple[float, ...]
    writer_gb_per_s: tuple[float, ...]
    checkpoint_gb_per_s: tuple[float, ...]
    wrong_files: int


class MountsFacts(Facts):
    mounts: tuple[MountFacts, ...]


def measure_mounts(request: Request) -> MountsFacts:
    seconds = request.seconds / max(1, len(request.mounts))
    return MountsFacts(mounts=tuple(_measure(mount, seconds) for mount in request.mounts))


def _measure(mount: Path, seconds: float) -> MountFacts:
    nothing = MountFacts(
        directory=str(mount),
        error="",
        metadata_seconds=(),
        fsync_seconds=(),
        writer_gb_per_s=(),
        checkpoint_gb_per_s=(),
        wrong_files=0,
    )
    try:
        with tempfile.TemporaryDirectory(prefix=".seatrial-mount-", dir=mount) as scratch:
            return _measured(nothing, Path(scratch), seconds / 4)
    except OSError as error:
        return nothing.model_copy(update={"error": f"{error.strerror or error}"})


def _measured(nothing: MountFacts, scratch: Path, seconds: float) -> MountFacts:
    metadata: list[float] = []
    fsyncs: list[float] = []
    writers: list[float] = []
    checkpoints: list[float] = []
    wrong = 0
    for _ in _rounds(seconds):
        metadata += [_seconds(lambda: _touch(scratch / "file")) for _ in range(FILES_A_ROUND)]
    with (scratch / "log").open("wb", buffering=0) as log:
        for _ in _rounds(seconds):
            fsyncs += [_seconds(lambda: _append(log.fileno())) for _ in range(10)]
    for _ in _rounds(seconds):
        took = _seconds(lambda: _write_together(scratch))
        writers.append(WRITERS * SHARD_BYTES / 4 / took / GB)
    for number in _rounds(seconds):
        payload = os.urandom(SHARD_BYTES)
        took, final = _checkpoint(scratch, number, payload)
        checkpoints.append(2 * SHARD_BYTES / took / GB)
        wrong += sum(uncached_read(shard, SHARD_BYTES)[1] != payload for shard in final.glob("shard-*"))
        for file in final.iterdir():
            file.unlink()
        final.rmdir()
    return nothing.model_copy(
        update={
            "metadata_seconds": tuple(metadata),
            "fsync_seconds": tuple(fsyncs),
            "writer_gb_per_s": tuple(writers),
            "checkpoint_gb_per_s": tuple(checkpoints),
            "wrong_files": wrong,
        }
    )


def _rounds(seconds: float) -> Iterator[int]:
    end, number = time.perf_counter() + seconds, 0
    while number < MIN_SAMPLES or time.perf_counter() < end:
        yield number
        number += 1


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _touch(file: Path) -> None:
    file.touch()
    file.stat()
    file.unlink()


def _append(file: int) -> None:
    os.write(file, b"x" * 4096)
    os.fsync(file)


def _write_together(scratch: Path) -> None:
    """Several threads, each a file of its own, durable."""
    payload = os.urandom(SHARD_BYTES // 4)
    errors: list[OSError] = []

    def write(number: int) -> None:
        try:
            durable_write(scratch / f"writer-{number}", payload)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _checkpoint(scratch: Path, number: int, payload: bytes) -> tuple[float, Path]:
    """As training commits one: shards, then the manifest, all fsynced, under a temporary name that is renamed."""
    temporary, final = scratch / f".tmp-{number}", scratch / f"step-{number}"
    start = time.perf_counter()
    temporary.mkdir()
    for shard in range(2):
        durable_write(temporary / f"shard-{shard}", payload)
    durable_write(temporary / "manifest.json", b"{}")
    temporary.rename(final)
    directory = os.open(scratch, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems know no fsync of directories
            os.fsync(directory)
    finally:
        os.close(directory)
    return time.perf_counter() - start, final


def judge_mounts(facts: MountsFacts, limits: Limits) -> Judgement:
    if not facts.mounts:
        return Judgement(Verdict.SKIPPED, "no mount was named: give --mounts /shared,/scratch")
    findings: list[Finding] = []
    numbers: list[Measurement] = []
    for mount in facts.mounts:
        findings += _judge(mount, limits)
        numbers += _numbers(mount)
    return conclude(findings, numbers)


def _judge(mount: MountFacts, limits: Limits) -> list[Finding]:
    where = mount.directory
    if mount.error:
        return [(Verdict.FAIL, f"{where}: cannot be written: {mount.error}")]
    times = (*mount.metadata_seconds, *mount.fsync_seconds)
    if min(len(mount.metadata_seconds), len(mount.fsync_seconds)) < MIN_SAMPLES or mount.wrong_files < 0:
        return [(Verdict.INCONCLUSIVE, f"{where}: too few operations were timed")]
    if not all(seconds > 0 for seconds in times):
        return [(Verdict.INCONCLUSIVE, f"{where}: a timing is not a number above zero")]
    findings: list[Finding] = []
    limit = limits.of(cpu_limits.STORAGE_WRITE)
    for what, rates in (("checkpoint", mount.checkpoint_gb_per_s), (f"{WRITERS} writers", mount.writer_gb_per_s)):
        verdict, text = judge_rate(limit, rates, f"{where}, {what}")
        findings.append((verdict, text))
    if mount.wrong_files:
        findings.append((Verdict.FAIL, f"{where}: {mount.wrong_files} files did not read back as written"))
    for what, samples in (("fsync", mount.fsync_seconds), ("create, stat, unlink", mount.metadata_seconds)):
        p50, p99 = percentile(samples, 50), percentile(samples, 99)
        if p99 > SLOW_TAIL * p50 and p99 > TAIL_SECONDS:
            findings.append((Verdict.WARN, f"{where}: {what} stalls: p99 {p99:.2g} s, median {p50 * 1000:.2g} ms"))
    return findings


def _numbers(mount: MountFacts) -> list[Measurement]:
    where = mount.directory
    numbers = [
        measurement("metadata operation", mount.metadata_seconds, "s", where),
        measurement("fsync of 4 KiB", mount.fsync_seconds, "s", where),
        measurement(f"{WRITERS} writers", mount.writer_gb_per_s, "GB/s", where),
        measurement("checkpoint", mount.checkpoint_gb_per_s, "GB/s", where),
    ]
    for name, samples in (("metadata p99", mount.metadata_seconds), ("fsync p99", mount.fsync_seconds)):
        if samples:
            p99 = percentile(samples, 99)
            numbers.append(Measurement(name=name, value=p99, unit="s", n=len(samples), spread=0.0, where=where))
    return [number for number in numbers if number.n]


CHECKS = (
    Check(
        name="storage.mounts",
        question="Does every named mount take metadata, fsync, many writers and checkpoints at a steady pace?",
        remedy="compare with the contract of the named mount; a stalling tail is a busy or a degraded file server",
        facts=MountsFacts,
        measure=measure_mounts,
        judge=judge_mounts,
        limits=(cpu_limits.STORAGE_WRITE,),
        share=1.0,
    ),
)
