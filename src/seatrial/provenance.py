"""Where a number comes from: commit, versions, machine. No figure is published without it."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from seatrial import __version__
from seatrial.hardware import cpu_model, gpu_names
from seatrial.records import JsonObject
from seatrial.shell import run

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "bitsandbytes", "liger-kernel", "triton")


def provenance() -> JsonObject:
    """Commit (with ``dirty`` when the tree differs from it), package versions, hardware and the command line."""
    return {
        "seatrial": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "gpus": list(gpu_names()),
        "kernel": platform.release(),
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _commit() -> str:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown: not a checkout"
    head = run(["git", "-C", str(root), "rev-parse", "HEAD"], timeout_seconds=10)
    changed = run(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"], timeout_seconds=10)
    if not head.ok:
        return f"unknown: {head.stderr.strip()}"
    return head.stdout.strip() + (" dirty" if changed.stdout.strip() else "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
