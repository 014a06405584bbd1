"""Under what equal bits may be expected: what a step's result depends on besides model, data, settings and seed."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from seatrial.dist.plan import Layout
from seatrial.dist.world import World
from seatrial.hardware import cpu_model, gpu_driver
from seatrial.model import cudnn_attention, flash_attention
from seatrial.records import JsonObject
from seatrial.train.exact import Exactness

PACKAGES = ("torch", "triton", "transformers", "flash-attn-4", "nvidia-cudnn-frontend", "bitsandbytes")


def bits_fingerprint(world: World, layout: Layout, exactness: Exactness) -> JsonObject:
    """Of this process. Trainings that agree in it, in settings and in data give the same bits, as ``promise`` says.

    The number of processes and the plan are in it only where the promise is for one number of them. What the backward
    pass computes again always is: it may round otherwise than what was kept.
    """
    found: JsonObject = {
        "promise": exactness.promise,
        "checkpointing": layout.checkpointing,
        "packages": {name: there for name in PACKAGES if (there := _version(name)) is not None},
    }
    if not exactness.order_free:
        found |= {"processes": world.size, "plan": layout.plan}
    if world.device.type != "cuda":
        return found | {"device": f"{platform.machine()} {cpu_model()}", "threads": torch.get_num_threads()}
    device = world.device.index
    kernels = {"flash-attn-4": flash_attention.is_available(device), "cudnn": cudnn_attention.is_available(device)}
    return found | {
        "device": torch.cuda.get_device_name(world.device),
        "capability": list(torch.cuda.get_device_capability(world.device)),
        "driver": gpu_driver(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "attention": [name for name, there in kernels.items() if there] + ["torch"],
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
