"""Jobs and answers to judge."""

from pathlib import PurePosixPath
from typing import Any

from seatrial.launch.job import Job
from seatrial.records import Verdict
from seatrial.shell import Output


def job(**fields: Any) -> Job:
    """Two nodes of 8 GPUs that train, unless ``fields`` say otherwise."""
    given = {"name": "tune", "config": "train.yaml", "nodes": 2, "workdir": PurePosixPath("/mnt/data/work")}
    if fields.get("verb", "train") not in ("train", "drill"):
        del given["config"]
    return Job.model_validate({**given, **fields})


def answer(stdout: str = "", stderr: str = "", returncode: int | None = 0, argv: tuple[str, ...] = ("tool",)) -> Output:
    return Output(argv, returncode, stdout, stderr, 0.1)


PASS, WARN, FAIL, SKIPPED = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIPPED
