"""The card that goes with an exported model: what it is, how it was made, how to serve it."""

from pathlib import Path

from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings


def write_card(directory: Path, run: RunDir, settings: TrainSettings) -> None:
    """Write ``README.md`` into an exported model or adapter."""
    metrics = run.read_metrics()
    (directory / "README.md").write_text(
        render_card(settings, steps=len({record["step"] for record in metrics}), loss=metrics[-1]["loss"])
    )


def render_card(settings: TrainSettings, *, steps: int, loss: float) -> str:
    """The card's text."""
    lora = settings.lora
    method = "every parameter" if lora is None else f"LoRA, rank {lora.rank}, alpha {lora.alpha:g}"
    what, merge = ("model", "") if lora is None else ("adapter", " (merge it first: `seatrial export RUN --merged`)")
    return f"""---
base_model: {settings.model.path}
library_name: {"transformers" if lora is None else "peft"}
tags: [function-calling, seatrial]
---
# Function-calling {what}

Trained by seatrial from `{settings.model.path}`: {method}; {steps} optimizer steps of
{settings.optimizer.packs_per_step} packs of {settings.data.length} tokens, learning rate {settings.optimizer.learning_rate:g}, seed {settings.run.seed};
last loss {loss:.4f}.

The chat template in this directory is the one it was trained with: serve it with this template and the parser of
its tag format{merge}:

    vllm serve DIRECTORY --enable-auto-tool-choice --tool-call-parser hermes
"""
