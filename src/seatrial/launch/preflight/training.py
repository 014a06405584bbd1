"""The settings that travel with a job, and what they name: model, data, run directory, and room for checkpoints."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from seatrial.data.conversation import read_records, records_file
from seatrial.data.fetch import HUB_NAME, plan_model, tokenizer_folder
from seatrial.data.render import Rendered, TrainOn, load_renderer
from seatrial.dist.plan import Job as Memory
from seatrial.dist.plan import Layout, Shape, estimate
from seatrial.errors import IntegrityError, SettingsError, UsageError
from seatrial.hardware import GB, GIB
from seatrial.launch.job import Job
from seatrial.launch.preflight.finding import Finding, doubtful, failed, passed, skipped
from seatrial.launch.preflight.node import first_existing
from seatrial.launch.preflight.place import CONTAINERS, Place, place_of
from seatrial.launch.staging import destination
from seatrial.settings import DataSettings, TrainSettings, load_settings

SAMPLED_ROWS = 200
DROPPED_SHARE = 0.1
"""A tenth of the rows longer than a pack is more than the tail of any data set that was meant for that length."""


@dataclass(frozen=True)
class Model:
    """``folder`` holds config.json and the tokenizer here; None where only the nodes see them."""

    findings: tuple[Finding, ...]
    folder: Path | None


def check_training(job: Job, target: str, config: Path) -> tuple[Finding, ...]:
    """Everything that ``config`` names.

    Args:
        config: ``job.config``, where it lies on this machine.
    """
    # A drill takes no overrides, and makes run directories of its own.
    overrides = [word for word in job.arguments if "=" in word and not word.startswith("-")]
    if job.run_dir is not None and job.verb == "train":
        overrides.append(f"run.dir={job.run_dir}")
    try:
        settings = load_settings(config, overrides, TrainSettings)
    except SettingsError as error:
        return (failed("settings", str(error), "mend it; nothing else was looked at"),)
    model = _check_model(job, target, settings)
    return (
        passed("settings", f"{config} is valid"),
        *model.findings,
        *_check_data(job, target, settings, model.folder),
        *(_check_run_dir(job, target, settings, model.folder) if job.verb == "train" else ()),
    )


def _check_model(job: Job, target: str, settings: TrainSettings) -> Model:
    what, path = f"model {settings.model.path}", settings.model.path
    if path == "tiny":
        return Model((passed(what, "comes with seatrial"),), Path(__file__).parents[2] / "assets" / "tiny")
    if HUB_NAME.fullmatch(path) and not Path(job.workdir, path).is_dir():
        return _check_hub_model(what, path)
    place = place_of(job, target, PurePosixPath(path))
    if place.here is None:
        return Model((_unseen(what, place, job, target),), None)
    if not (place.here / "config.json").is_file():
        remedy = f"`seatrial data fetch OWNER/NAME --to {place.here}`, or name it in job.stage and launch with --stage"
        return Model((failed(what, f"{place.here} has no config.json", remedy),), None)
    if settings.model.weights == "pretrained" and not list(place.here.glob("*.safetensors")):
        return Model((failed(what, f"{place.here} has no *.safetensors", "fetch it whole, or convert it"),), None)
    return Model((passed(what, f"is in {place.here}"),), place.here)


def _check_hub_model(what: str, name: str) -> Model:
    """Access, size, and the small files that lengths are counted with."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        size_gb = plan_model(name).total_bytes / GB
        folder = tokenizer_folder(name)
    except UsageError as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, HfHubHTTPError):  # it gave no answer
            return Model((doubtful(what, str(error), "see that the nodes reach it, or stage it"),), None)
        return Model((failed(what, str(error), "or name a directory that holds it"),), None)
    finding = doubtful(
        what,
        f"every node downloads {size_gb:.1f} GB from the hub, unless HF_HOME lies on a shared mount",
        f"set job.stage to [[fetch, {name}, --to, DIR]], launch with --stage, and name DIR as model.path",
    )
    return Model((finding,), folder)


def _check_data(job: Job, target: str, settings: TrainSettings, model: Path | None) -> Iterator[Finding]:
    what = f"data {settings.data.train}"
    place = place_of(job, target, PurePosixPath(settings.data.train))
    if job.nodes > 1 and place.mount is not None and place.mount.kind != "shared":
        remedy = "name a directory on a mount of kind shared, or put the same rows there on every node"
        yield doubtful(what, f"lies on {place.mount.path}, which each node has of its own", remedy)
    if place.here is None:
        yield _unseen(what, place, job, target)
        return
    try:
        rows = list(islice(read_records(records_file(place.here)), SAMPLED_ROWS))
    except UsageError as error:
        reason, _, remedy = str(error).rpartition("; ")
        yield failed(what, reason, f"{remedy}, or name it in job.stage and launch with --stage")
        return
    if not rows:
        yield failed(what, f"{place.here} holds no record", "`seatrial data prepare` it again")
        return
    if model is None:
        yield passed(what, f"holds records; lengths are not known, the tokenizer is not here ({len(rows)} read)")
        return
    try:
        renderer = load_renderer(model, settings.data.template)
    except (UsageError, IntegrityError) as error:
        yield failed("template", str(error), "choose data.template, or leave it out")
        return
    rendered = [renderer.render(row, TrainOn(settings.data.train_on)) for row in rows]
    lengths = [len(row.ids) for row in rendered if isinstance(row, Rendered)]
    yield judge_lengths(what, lengths, len(rows), settings.data)


def judge_lengths(what: str, lengths: Sequence[int], rows: int, data: DataSettings) -> Finding:
    """``lengths``: tokens of the first ``rows`` rows that could be rendered."""
    if not lengths:
        remedy = "`seatrial data validate` names the reasons"
        return failed(what, f"the template refuses all of the first {rows} rows", remedy)
    longer = sum(length > data.length for length in lengths)
    of_rows = f"{longer} of the first {rows} rows are longer than data.length {data.length}"
    longest = f"set data.length to {max(lengths)}"
    if longer and data.over_long == "raise":
        return failed(what, f"{of_rows}, and data.over_long is raise", longest)
    if longer == len(lengths) and data.over_long == "drop":
        return failed(what, f"{of_rows}, so none is left", longest)
    if longer > DROPPED_SHARE * len(lengths):
        return doubtful(what, f"{of_rows}: data.over_long is {data.over_long}", f"{longest} to keep them whole")
    return passed(what, f"{len(lengths)} of the first {rows} rows can be trained on, the longest {max(lengths)} tokens")


def _check_run_dir(job: Job, target: str, settings: TrainSettings, model: Path | None) -> Iterator[Finding]:
    what = f"run.dir {settings.run.dir}"
    place = place_of(job, target, PurePosixPath(settings.run.dir))
    if found := judge_run_dir(what, job, target, place):
        yield found
        return
    if settings.checkpoint.dir is not None and "://" in settings.checkpoint.dir:
        yield skipped(
            "free space", f"checkpoints go to {settings.checkpoint.dir}, which is not asked how much it takes"
        )
        return
    if model is None:
        yield skipped("free space", "how large a checkpoint is follows from the model's config.json, not seen here")
        return
    if settings.checkpoint.dir is not None:
        place = place_of(job, target, PurePosixPath(settings.checkpoint.dir))
    try:
        needed = needed_bytes(json.loads((model / "config.json").read_text()), settings)
    except (UsageError, ValueError) as error:
        yield failed("model", f"config.json: {error}", "name a model of the kinds that seatrial trains: model.path")
        return
    yield from _check_space(place, needed)


def judge_run_dir(what: str, job: Job, target: str, place: Place) -> Finding | None:
    """None where the run directory outlives the job and is the same for all nodes."""
    remedy = "set job.run_dir to a directory on a mount of kind shared"
    if place.mount is None:
        return failed(what, "lies on no mount, so it goes with its container", remedy) if target in CONTAINERS else None
    if place.mount.kind == "scratch":
        return failed(what, f"lies on {place.mount.path}, which is lost when the job ends", remedy)
    if place.mount.kind == "disk" and job.nodes > 1:
        return failed(what, f"lies on {place.mount.path}, which each of {job.nodes} nodes has of its own", remedy)
    return None


def needed_bytes(model: Mapping[str, Any], settings: TrainSettings) -> int:
    """Room for the checkpoints that are kept and the one being written: trained weights in float32 and their moments.

    Args:
        model: config.json.
    """
    lora = settings.lora
    sizes = estimate(
        Shape.of(model),
        Memory(
            rank=lora.rank if lora is not None else 0,
            pack_tokens=settings.data.length,
            targets=lora.targets if lora is not None else (),
            moment_bytes=2 if settings.optimizer.kind == "adamw8bit" else 8,
        ),
        Layout("replicate", 1, "none"),
        gpus=1,
    )
    trained = sizes.adapters if lora is not None else sizes.weights
    return (trained + sizes.moments) * (settings.checkpoint.keep + 1)


def _check_space(place: Place, needed: int) -> Iterator[Finding]:
    if place.here is not None:
        free = shutil.disk_usage(first_existing(place.here)).free
        yield judge_space(f"free space for {place.path}", free, needed)
    elif place.mount is not None and place.mount.size_gib is not None:
        yield judge_space(f"size of {place.mount.path}", place.mount.size_gib * GIB, needed)
    else:
        where = place.mount.path if place.mount is not None else place.path
        yield skipped("free space", f"{where} is not seen from here; checkpoints take {needed / GIB:.1f} GiB")


def judge_space(what: str, free_bytes: int, needed_bytes: int) -> Finding:
    reason = f"{free_bytes / GIB:.1f} GiB, checkpoints take {needed_bytes / GIB:.1f} GiB"
    if free_bytes < needed_bytes:
        return failed(what, reason, "make room, enlarge the mount (job.mounts), or lower checkpoint.keep")
    return passed(what, reason)


def _unseen(what: str, place: Place, job: Job, target: str) -> Finding:
    """What lies where this machine cannot look."""
    if any(destination(words) == place.path for words in job.stage):
        return skipped(what, f"{place.path} is not seen from this machine; --stage puts it there")
    if place.mount is None and target in CONTAINERS:
        return skipped(what, f"{place.path} is on no mount, so it must be in the image", "put it on a mount otherwise")
    remedy = "name it in job.stage and launch with --stage, unless it is there"
    return skipped(what, f"{place.path} is not seen from this machine", remedy)
