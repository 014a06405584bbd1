"""The card that goes with an exported model: what it is, how it was made, how to serve it."""

from pathlib import Path

from seatrial.data.template import Template
from seatrial.model.adapter import CONFIG
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings


def write_card(directory: Path, run: RunDir, settings: TrainSettings, template: Template) -> None:
    """Write ``README.md`` into an exported model or adapter."""
    metrics = run.read_metrics()
    steps = len({record["step"] for record in metrics})
    card = render_card(
        settings, template, merged=not (directory / CONFIG).is_file(), steps=steps, loss=metrics[-1]["loss"]
    )
    (directory / "README.md").write_text(card)


def render_card(settings: TrainSettings, template: Template, *, merged: bool, steps: int, loss: float) -> str:
    """The card's text."""
    lora, optimizer = settings.lora, settings.optimizer
    method = "every parameter" if lora is None else f"LoRA of rank {lora.rank} and alpha {lora.alpha:g}"
    what = "model" if merged else "adapter"
    model = "." if merged else settings.model.path
    adapter = (
        [] if merged else ["--enable-lora", f"--max-lora-rank {lora.rank if lora else 0}", "--lora-modules calls=."]
    )
    serve = " ".join(["vllm serve", model, *adapter, *template.vllm_arguments])
    return f"""---
base_model: {settings.model.path}
library_name: {"transformers" if merged else "peft"}
tags: [function-calling, seatrial]
---
# Function-calling {what}

Trained by seatrial from `{settings.model.path}`: {method}, {steps} optimizer steps of {optimizer.packs_per_step}
packs of {settings.data.length} tokens, learning rate {optimizer.learning_rate:g}, seed {settings.run.seed}; the last
loss was {loss:.4f}.

The chat template in this directory is the one it was trained with. Serve it with this template and with the parser
that reads what the template writes:

    {serve}
"""
