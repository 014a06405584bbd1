"""Jobs of the sizes that golden files show."""

from typing import Any

from hypothesis import strategies as st

from seatrial.launch.job import Job

CONFIG = "run: {dir: runs/llama}\nmodel: {path: meta-llama/Llama-3.1-8B-Instruct}\ndata: {train: data/tools}\n"

NASTY = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=30) | st.sampled_from(
    [
        "$(touch broken)",
        "`id`",
        "'; exit 1 #",
        '"',
        "\\",
        "a\nb",
        "END_OF_SETTINGS",
        "a\nEND_OF_SETTINGS\nexit 1",
        "no",
        "\r",
        "a\r\n",
    ]
)
"""Text of a user that a script must neither run nor change."""


def training(nodes: int, **changes: Any) -> Job:
    """LoRA of an 8B on whole nodes of 8 GPUs, with a shared file system."""
    fields: dict[str, Any] = {
        "name": "llama-lora",
        "config": "llama.yaml",
        "arguments": ("optimizer.epochs=2",),
        "nodes": nodes,
        "venv": "/mnt/data/venv",
        "image": "registry.example/seatrial:0.1",
        "workdir": "/mnt/data/work",
        "run_dir": "/mnt/data/runs/llama-lora",
        "mounts": ({"path": "/mnt/data", "size_gib": 2048},),
        "environment": {"HF_HOME": "/mnt/data/huggingface"},
        "secrets": ("HF_TOKEN",),
        **changes,
    }
    return Job.model_validate(fields)
