"""Jobs of the sizes that golden files show."""

from typing import Any

from seatrial.launch.job import Job

CONFIG = "run: {dir: runs/llama}\nmodel: {path: meta-llama/Llama-3.1-8B-Instruct}\ndata: {train: data/tools}\n"


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
