"""From a path or a name to a model on a device: for training, and whole for inference."""

import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from seatrial.data.render import Renderer, load_renderer
from seatrial.data.template import Template, write_template
from seatrial.errors import UsageError
from seatrial.model.adapter import load_adapter
from seatrial.model.attention import PACKED_ATTENTION
from seatrial.model.lora import merge_lora
from seatrial.model.stream import Filled, fill_pretrained, fill_random
from seatrial.rundir import RunDir
from seatrial.settings import ModelSettings, TrainSettings

TINY = Path(__file__).resolve().parents[1] / "assets" / "tiny"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def model_directory(path: str) -> Path:
    """The directory of 'tiny', of a local path, or of a hub name (downloaded or cached by huggingface_hub).

    Raises:
        UsageError: none of the three.
    """
    if path == "tiny":
        return TINY
    directory = Path(path).expanduser()
    if directory.is_dir():
        if not (directory / "config.json").is_file():
            raise UsageError(f"model.path: {directory} has no config.json, so it is not a model directory")
        return directory
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(path, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UsageError(
            f"model.path: {path} is neither 'tiny', nor a directory, nor a model the hub gives us "
            f"({type(error).__name__}); check the spelling, HF_TOKEN and the network"
        ) from error


def empty_model(config: PretrainedConfig, dtype: str) -> PreTrainedModel:
    """A model with packed attention on the meta device, as a training takes it: structure without data."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype], attn_implementation=PACKED_ATTENTION)
    assert isinstance(model, PreTrainedModel)
    model.train()
    return model


def empty_for_training(settings: ModelSettings) -> PreTrainedModel:
    """The model that the settings name, on the meta device; ``fill_for_training`` gives it data."""
    return empty_model(AutoConfig.from_pretrained(model_directory(settings.path)), settings.dtype)


def fill_for_training(model: PreTrainedModel, settings: ModelSettings, *, device: torch.device, seed: int) -> Filled:
    """Data for a model on the meta device, whatever adapters, number formats and sharding were laid over it.

    Raises:
        IntegrityError: the weights are not those of the model's configuration.
    """
    if settings.weights == "random":
        return fill_random(model, device=device, seed=seed)
    return fill_pretrained(model, model_directory(settings.path), device=device, seed=seed)


def load_for_inference(path: Path, *, device: torch.device) -> tuple[PreTrainedModel, Renderer]:
    """A run's model (adapters merged into the base) or a plain model directory, ready to generate.

    On a GPU a run's model is in the type that it was trained in, as it is exported, and any other as it is stored; on
    a CPU both are in float32.

    Raises:
        UsageError: ``path`` is neither, or the run has not finished a model yet.
    """
    logging.disable_progress_bar()
    run = RunDir(path)
    directory, adapter, template = path, None, None
    dtype: torch.dtype | str = "auto"
    if run.settings.is_file():
        settings = TrainSettings.model_validate(run.read_settings())
        dtype = DTYPES[settings.model.dtype]
        if run.model.is_dir():
            directory = run.model
        elif run.adapter.is_dir():
            directory, adapter, template = model_directory(settings.model.path), run.adapter, settings.data.template
        else:
            raise UsageError(f"{path}: this run has no adapter or model yet; let `seatrial train` finish it")
    elif str(path) == "tiny":
        directory = TINY
    elif not (path / "config.json").is_file():
        raise UsageError(f"{path}: neither a run directory (settings.json) nor a model directory (config.json)")
    if device.type == "cpu":
        dtype = torch.float32  # what fits a CPU is small, and its scores must not hang on rounding
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="sdpa")
    assert isinstance(model, PreTrainedModel)
    if adapter is not None:
        load_adapter(model, adapter)
        merge_lora(model)
    model.eval()
    return _on(model, device), load_renderer(directory, template)


def _on(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    moved: PreTrainedModel = torch.nn.Module.to(model, device)
    return moved


def copy_tokenizer(settings: TrainSettings, target: Path) -> Template:
    """Copy the base's tokenizer byte for byte and write the chat template of the training over its own.

    What is served is then tokenized and laid out as what was trained.
    """
    source = model_directory(settings.model.path)
    for pattern in (
        "tokenizer*",
        "special_tokens_map.json",
        "*.jinja",
        "vocab*",
        "merges.txt",
        "generation_config.json",
    ):
        for path in source.glob(pattern):
            shutil.copy2(path, target / path.name)
    template = load_renderer(source, settings.data.template).template
    write_template(template, target)
    return template
