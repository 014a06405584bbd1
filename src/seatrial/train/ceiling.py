"""What this GPU's matrix units sustain, measured: the ceiling that a step is held against."""

import json
import time

import torch

from seatrial.model.fp8 import has_fp8_units
from seatrial.records import JsonObject, write_json
from seatrial.rundir import RunDir

SIZE = 8192
"""1.1e12 FLOP a product: launches do not show, and the multiprocessors have work for many waves."""
SECONDS = 2.0
"""The clock settles to what the power limit allows within a second or two (results/accept_h100_2026-11-21.md)."""
BATCH = 16


def gemm_ceilings(run: RunDir, device: torch.device) -> dict[str, float] | None:
    """TFLOP/s of large bf16 and, where there are units for it, fp8 products; None on a CPU.

    Measured once for each kind of GPU and kept in the run directory, so that a restart does not measure again.
    """
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    known: JsonObject = json.loads(run.ceilings.read_text()) if run.ceilings.is_file() else {}
    if name not in known:
        formats = ("bf16", "fp8") if has_fp8_units(device) else ("bf16",)
        known[name] = {f"{kind}_tflop_per_s": _sustained(kind, device) for kind in formats}
        write_json(run.ceilings, known)
        torch.cuda.empty_cache()
    return {key.removesuffix("_tflop_per_s"): float(value) for key, value in known[name].items()}


def _sustained(kind: str, device: torch.device) -> float:
    """Median over the second half of the time, on random numbers: bits toggle, and power is drawn, as in training."""
    x, y = (torch.randn(SIZE, SIZE, device=device, dtype=torch.bfloat16) for _ in range(2))
    if kind == "fp8":
        x, y = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn)
    ones_T1, ones_1N = (torch.ones(shape, device=device) for shape in ((SIZE, 1), (1, SIZE)))
    seconds = []
    begin = time.monotonic()
    while time.monotonic() - begin < SECONDS:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(BATCH):
            if kind == "fp8":
                torch._scaled_mm(x, y.t(), ones_T1, ones_1N, out_dtype=torch.bfloat16, use_fast_accum=True)
            else:
                torch.mm(x, y.t())
        stop.record()
        stop.synchronize()
        seconds.append(start.elapsed_time(stop) / 1e3 / BATCH)
    late = sorted(seconds[len(seconds) // 2 :])
    return float(2 * SIZE**3 / late[len(late) // 2] / 1e12)
