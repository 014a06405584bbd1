"""The first step of a compiled training in a process of its own: python -m tests.model.first_step MODEL."""

import json
import sys
import time

import numpy as np
import torch
from torch._dynamo.utils import counters

from seatrial.data.pack import pack_tensors
from seatrial.data.render import Rendered
from seatrial.model.compiled import keep_compiled_code
from seatrial.model.load import empty_for_training, fill_for_training
from seatrial.model.lora import apply_lora
from seatrial.model.packed import PackLoss, compile_blocks, pack_input
from seatrial.settings import ModelSettings

CPU = torch.device("cpu")


def first_step(path: str) -> dict[str, object]:
    """What it took, and what torch counted of its cache."""
    folder = keep_compiled_code()
    settings = ModelSettings(path=path, dtype="float32", compute="float32")
    model = empty_for_training(settings)
    apply_lora(model, targets=("q_proj", "k_proj", "v_proj", "down_proj"), rank=2, alpha=2.0, seed=0)
    model.enable_input_require_grads()
    fill_for_training(model, settings, device=CPU, seed=0)
    packed = PackLoss(model)
    compile_blocks(model)
    row = Rendered(np.arange(3, 35, dtype=np.int32), np.ones(32, dtype=bool))
    pack = pack_input(pack_tensors([row], 32, 0), CPU)
    began = time.monotonic()
    loss = packed(pack)
    loss.backward()
    return {
        "seconds": time.monotonic() - began,
        "loss": loss.item(),
        "folder": str(folder),
        "hits": counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"],
        "compiled": counters["inductor"]["fxgraph_cache_miss"],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(first_step(sys.argv[1])))  # noqa: T201
