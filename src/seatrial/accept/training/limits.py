"""What a training step of the stated shape should do: tokens a second where it was measured, else a share of the GPU.

FLOP of a token (:mod:`seatrial.train.flops`), Llama 3.1 8B with adapters of rank 64 and rows of 4,096 tokens: base 4 x
6.98 G, adapters 6 x 0.168 G, head 4 x 0.525 G at every position but a row's last, attention 6 x 4,096 x 32 x 4,096.
"""

from seatrial.accept.gpu_kinds import H100, H200, GpuKind
from seatrial.accept.limits import FAIL_SHARE, WARN_SHARE, Limit

FLOP_PER_TOKEN = 34.246e9
STEP_H100 = "results/step_h100_2026-11-21.md, packs of 8,192, 381.4 ms"
STEP_H200 = "results/gpus_h200_2026-11-21.md, packs of 8,192, 367.2 ms"
OWN_H100 = "results/accept-training_h200_2026-11-21.md: one H100, 10 steps of this very check"
OWN_H200 = "results/accept-training_h200_2026-11-21.md: four H200, 112 steps each, 22,293 to 22,710"


def _step(kind: GpuKind, attention: str, tokens_per_s: float, source: str) -> Limit:
    fp8 = kind.fp8_tflop_per_s()
    assert fp8 is not None
    bound = fp8 * 1e12 / FLOP_PER_TOKEN
    return Limit(
        name=f"fp8 training step on {kind.name} by {attention}",
        unit="tokens/s",
        reference=tokens_per_s,
        warn=tokens_per_s * WARN_SHARE,
        fail=tokens_per_s * FAIL_SHARE,
        bound=bound,
        arithmetic=f"bound: {fp8:.0f} TFLOP/s / {FLOP_PER_TOKEN / 1e9:.1f} GFLOP a token = {bound:.0f} tokens/s; "
        f"reference {tokens_per_s:g}, floor {FAIL_SHARE:.0%} of it: cards differ by 3 %",
        source=source,
    )


STEP = {
    (H100, "flash-attn-4"): _step(H100, "flash-attn-4", 21477, STEP_H100),
    (H100, "cudnn"): _step(H100, "cudnn", 20980, OWN_H100),
    (H100, "torch"): _step(H100, "torch", 19070, OWN_H100),
    (H200, "flash-attn-4"): _step(H200, "flash-attn-4", 22276, STEP_H200),
    (H200, "cudnn"): _step(H200, "cudnn", 22450, OWN_H200),
    (H200, "torch"): _step(H200, "torch", 22450 * 19070 / 20980, f"computed: as on the H100 ({OWN_H100}); {OWN_H200}"),
}
"""By kind of GPU and by the kernel that computes attention: which one is installed changes a step by 12 %."""

UTILISATION_SHARE = 0.80
"""Of the reference: the kernel for attention and the kind of GPU change a step's utilisation by 10 %."""


def _utilisation(base: str, reference: float, how: str) -> Limit:
    return Limit(
        name=f"MFU of a training step, base {base}",
        unit="1",
        reference=reference,
        fail=reference * UTILISATION_SHARE,
        bound=1.05,
        arithmetic=f"time of the step's FLOP at the rates that this GPU sustains in large products, over the time "
        f"taken; at most 1, and 5 % for clocks that change in between; reference {how}, floor {UTILISATION_SHARE:.0%}",
        source=f"{STEP_H100}; {OWN_H100}",
    )


MFU = {
    "fp8": _utilisation("fp8", 0.62, "0.59 by torch's attention on an H100 to 0.69 on an H200"),
    "plain": _utilisation("bf16", 0.74, "15,895 tokens/s x 34.2 GFLOP / 700 TFLOP/s = 0.78 on an H100, less 5 %"),
}

TOGETHER = Limit(
    name="training together over alone, NVLink",
    unit="1",
    reference=0.974,
    warn=0.945,
    fail=0.905,
    bound=1.05,
    arithmetic="a step alone over a step of all GPUs of a node, medians; 21,686 of 22,276 tokens/s = 0.974 on 4, and "
    "0.967 by this very check; floor 93 %, warning 97 % of 0.974; at most 1, and 5 % for clocks that change in between",
    source=f"results/gpus_h200_2026-11-21.md, LoRA fp8, 4 x H200, NVLink multicast off; {OWN_H200}",
)

NODES = Limit(
    name="training of all nodes over one, RDMA",
    unit="1",
    reference=0.95,
    warn=0.90,
    fail=0.80,
    bound=1.05,
    arithmetic="a step within a node over a step of all nodes, medians; gradients of 168 M numbers are 0.67 GB, "
    "at 300 GB/s 4.5 ms of a step of 380 were nothing hidden: 0.99, less 4 % for ranks that wait for each other; "
    "floor 0.80, at which a contract for 16 nodes loses three",
    source="computed; 300 to 380 GB/s between nodes: the sources of collectives.nccl",
)

TRAINING_LIMITS = (*STEP.values(), *MFU.values(), TOGETHER, NODES)
