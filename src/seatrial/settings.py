"""Every setting and its default, and the loader: YAML file, then ``key=value`` overrides, then strict validation."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError

from seatrial.errors import SettingsError
from seatrial.records import Frozen

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
S = TypeVar("S", bound=Frozen)


class RunSettings(Frozen):
    """Where the run lives and what seeds it."""

    dir: Path
    seed: NotNegative = 0
    exact: Literal["auto", "on", "off"] = Field(
        "auto",
        description="on: adapters are the same bit for bit on any number of GPUs, a whole model on as many; auto: on "
        "where it costs under 1 %, which is where no row is longer than 2,048 tokens",
    )
    timeout_seconds: Positive = Field(600, description="how long a rank waits for another before it gives up")
    hang_seconds: Annotated[float, Field(gt=0)] = Field(
        7.0, description="a step that takes three times the usual time and this long hangs: the attempt is ended"
    )
    grace_seconds: Positive = Field(
        30, description="from being asked to stop to being killed; a save that takes longer is not begun"
    )
    max_attempts_without_progress: Positive = Field(
        3, description="so many attempts in a row that fail and commit no step end the run for good"
    )
    acceptance: Path | None = Field(
        None,
        description="acceptance.json of these GPUs: an alarm is raised where training stays slower than it leads to "
        "expect, and where a rank is slower than its GPU was",
    )


class ModelSettings(Frozen):
    """Which model, and in which number formats."""

    path: str = Field(description="'tiny' (the base shipped with seatrial), a model directory, or a hub name")
    weights: Literal["pretrained", "random"] = Field(
        "pretrained", description="'random' initialises the architecture of the model's config.json from run.seed"
    )
    dtype: Literal["float32", "bfloat16"] = Field("bfloat16", description="of the stored parameters")
    compute: Literal["float32", "bfloat16"] = Field("bfloat16", description="of matrix products (autocast)")
    base: Literal["plain", "fp8", "nf4"] = Field(
        "plain",
        description="how weights frozen under LoRA are stored: 'plain' as dtype says, or quantised once; with "
        "lora: null fp8 is what trained layers are multiplied in, and their weights are float32 as ever",
    )
    products: Literal["compute", "fp8"] = Field(
        "compute", description="what a base of nf4 is multiplied in; fp8 is faster and rounds once more"
    )
    compile: Literal["auto", "on", "off"] = Field(
        "auto", description="torch.compile of each decoder block; auto: on a GPU"
    )
    activation_checkpointing: Literal["auto", "none", "selective", "full"] = Field(
        "auto",
        description="what the backward pass computes again: 'selective' the MLP's wide products, 'full' whole blocks; "
        "auto: as little as the GPUs' memory allows",
    )


class DataSettings(Frozen):
    """What is trained on."""

    train: Path = Field(description="records.jsonl, or the directory `seatrial data prepare` wrote")
    template: str | None = Field(
        None, description="a shipped chat template by name, or 'stock'; null: ours for the model's family"
    )
    length: Positive = Field(2048, description="tokens in a pack, the one fixed micro-batch shape")
    over_long: Literal["drop", "truncate", "raise"] = Field(
        "drop", description="what happens to a row longer than a pack; 'truncate' cuts after the last answer that fits"
    )
    train_on: Literal["all", "last", "text"] = Field(
        "all", description="which assistant turns carry loss; 'text' trains on every token, as pre-training does"
    )


class LoraSettings(Frozen):
    """Low-rank adapters (arXiv 2106.09685) on the linear layers named by the last part of their name."""

    rank: Positive = 16
    alpha: Annotated[float, Field(gt=0)] = Field(32.0, description="the update is scaled by alpha / rank")
    dropout: Fraction = Field(0.0, description="share of an adapter's input that is zeroed while training, as in PEFT")
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class OptimizerSettings(Frozen):
    """AdamW (arXiv 1711.05101) and its schedule."""

    kind: Literal["adamw", "adamw8bit"] = Field(
        "adamw", description="'adamw8bit': moments in 8 bits, moved out of a GPU whose memory runs short"
    )
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    warmup_steps: NotNegative = 0
    steps: Positive | None = Field(None, description="optimizer steps; give this or epochs")
    epochs: Positive | None = None
    packs_per_step: Positive = Field(8, description="the global batch, whatever the number of GPUs")
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0


class ParallelSettings(Frozen):
    """How the model is laid over the processes."""

    plan: Literal["auto", "replicate", "shard", "hybrid"] = Field(
        "auto",
        description="'replicate': whole model on each GPU; 'shard': FSDP2 over all GPUs; 'hybrid': FSDP2 within a "
        "node, copies across; auto: the fastest that fits the GPUs' memory",
    )
    shard_size: Positive | None = Field(
        None, description="GPUs that share a copy of the model under hybrid; null: those of a node"
    )


class CheckpointSettings(Frozen):
    """When progress is made durable."""

    every_steps: Positive | None = Field(100, description="optimizer steps between saves; null: by time alone")
    mtbf_hours: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="mean time between failures of the whole job; saves then come as often as pays (Young, Daly), from "
        "what saves are measured to cost; null: by steps alone",
    )
    dir: str | None = Field(
        None, description="where checkpoints go: a path or a URL that fsspec knows, such as s3://...; null: the run.dir"
    )
    keep: Annotated[int, Field(ge=2)] = Field(2, description="newest committed checkpoints that are kept")


class GuardSettings(Frozen):
    """What is done about steps whose numbers are wrong."""

    max_skips: Positive = Field(3, description="steps in a row that are not finite, until training is rolled back")
    max_rollbacks: NotNegative = Field(3, description="in the whole run, until it fails")
    spike_z: Annotated[float, Field(gt=0)] | None = Field(
        12.0, description="a loss so many standard deviations above the median is a spike; null: none is"
    )
    spike_nats: Annotated[float, Field(ge=0)] = Field(0.5, description="and it is above it by more than this")
    window_steps: Annotated[int, Field(ge=8)] = Field(64, description="sound steps that a loss is compared with")


class TrainSettings(Frozen):
    """A whole training: what CONFIG.yaml holds."""

    run: RunSettings
    model: ModelSettings
    data: DataSettings
    lora: LoraSettings | None = Field(default_factory=LoraSettings, description="null: train every parameter")
    optimizer: OptimizerSettings = OptimizerSettings()
    parallel: ParallelSettings = ParallelSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    guard: GuardSettings = GuardSettings()


def load_settings(path: Path, overrides: Sequence[str], section: type[S]) -> S:
    """Settings from a YAML 1.2 file and ``a.b=value`` overrides, which are YAML too.

    Raises:
        SettingsError: unreadable file, bad YAML, unknown or ill-typed key; names file, line, key and the nearest key.
    """
    document = _read_yaml(path)
    for override in overrides:
        _apply_override(document, override)
    try:
        return section.model_validate(document)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(path, document, section, dict(e)) for e in error.errors())) from error


def _read_yaml(path: Path) -> CommentedMap:
    try:
        document = YAML(typ="rt").load(path.read_text())
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: no such settings file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise SettingsError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    if not isinstance(document, CommentedMap):
        raise SettingsError(f"{path}: expected sections such as 'run:' and 'model:', found {type(document).__name__}")
    return document


def _apply_override(document: CommentedMap, override: str) -> None:
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise SettingsError(f"override '{override}': expected key=value, such as optimizer.learning_rate=1e-4")
    try:
        value = YAML(typ="safe").load(text)
    except MarkedYAMLError as error:
        raise SettingsError(f"override '{override}': the value is not valid YAML: {error.problem}") from error
    *parents, last = dotted.split(".")
    place = document
    for parent in parents:
        if place.get(parent) is None:
            place[parent] = CommentedMap()
        if not isinstance(place[parent], CommentedMap):
            raise SettingsError(f"override '{override}': {parent} is a value, not a section")
        place = place[parent]
    place[last] = value
    # An overridden key no longer stands where the file says: error messages then name the override instead.
    place.lc.data.pop(last, None) if place.lc.data else None


def _explain(path: Path, document: CommentedMap, section: type[BaseModel], error: dict[str, Any]) -> str:
    location = [str(part) for part in error["loc"]]
    dotted = ".".join(location)
    where = f"{path}:{line}" if (line := _line_of(document, location)) else f"{path} or an override"
    match error["type"]:
        case "extra_forbidden":
            allowed = _keys_of(section, location[:-1])
            near = difflib.get_close_matches(location[-1], allowed, n=1, cutoff=0.5)
            hint = ".".join([*location[:-1], near[0]]) if near else None
            advice = f"did you mean {hint}?" if hint else f"known here: {', '.join(allowed)}"
            return f"{where}: unknown key {dotted}; {advice}"
        case "missing":
            return f"{path}: {dotted} is required"
        case _:
            return f"{where}: {dotted} = {error['input']!r}: {error['msg']}"


def _line_of(document: CommentedMap, location: Sequence[str]) -> int | None:
    """1-based line of the last part of ``location`` that stands in the file; None when an override put it there."""
    place: Any = document
    line: int | None = None
    for part in location:
        if not isinstance(place, CommentedMap) or part not in place:
            break
        if not place.lc.data or part not in place.lc.data:
            return None
        line = place.lc.key(part)[0] + 1
        place = place[part]
    return line


def _keys_of(section: type[BaseModel], location: Sequence[str]) -> list[str]:
    for part in location:
        inner = _section_of(section.model_fields[part]) if part in section.model_fields else None
        if inner is None:
            return []
        section = inner
    return list(section.model_fields)


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
