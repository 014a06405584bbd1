"""`seatrial bench train`, whole, on the smallest shape."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.bench.train import BenchRequest, bench_train
from seatrial.errors import UsageError
from tests.small import write_rows

SMALL = ["--shape", "tiny", "--length", "64", "--rank", "4", "--steps", "3"]


def bench(*arguments: str, processes: int = 0) -> subprocess.CompletedProcess[str]:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes else []
    command = [sys.executable, *launch, "-m", "seatrial", "bench", "train", *SMALL, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_two_processes(tmp_path: Path) -> None:
    done = bench(
        "--lengths", "tool-calls", "--length", "256", "--batch", "2", "--json", str(tmp_path / "b.json"), processes=2
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads((tmp_path / "b.json").read_text())
    assert result["gpus"] == 2
    assert result["step_ms"]["n"] == 3
    assert 0 < result["step_ms"]["p50"] <= result["step_ms"]["p90"] <= result["step_ms"]["p99"]
    assert 0 < result["trained_tokens_per_s_per_gpu"] < result["nonpad_tokens_per_s_per_gpu"]
    assert result["nonpad_tokens_per_s_per_gpu"] <= result["tokens_per_s_per_gpu"]
    assert result["batch"] == 2
    assert result["settings"]["train"]["data"]["length"] == 512
    assert result["provenance"]["packages"]["torch"]
    assert "random weights" in done.stderr


@pytest.mark.parametrize(("method", "base"), [("full", "bf16"), ("lora", "fp8")])
def test_every_token_counts_at_fixed_length(method: str, base: str) -> None:
    request = BenchRequest.model_validate(
        {"shape": "tiny", "method": method, "base": base, "rank": 4, "length": 64, "batch": 2, "steps": 2}
    )
    result = bench_train(request)
    assert result is not None
    assert result["tokens_per_s_per_gpu"] == result["nonpad_tokens_per_s_per_gpu"]
    assert result["trained_tokens_per_s_per_gpu"] == pytest.approx(result["tokens_per_s_per_gpu"] * 63 / 64)
    assert result["tflops_per_gpu"] > 0
    assert result["mfu"] is None


def test_real_weights_and_rows(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "data")
    result = bench_train(BenchRequest(model="tiny", data=rows, rank=4, length=512, batch=1, steps=2))
    assert result is not None
    assert result["warnings"] == []
    assert result["nonpad_tokens_per_s_per_gpu"] < result["tokens_per_s_per_gpu"]


def test_contradictions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="real rows need a tokenizer"):
        bench_train(BenchRequest(data=tmp_path))
    for arguments, said in (
        (["--shape", "lama-3.1-8b"], "llama-3.1-8b"),
        (["--lengths", "tool-calls"], "--length 64: hardly a row"),
        (["--base", "int3"], "--base int3"),
        (["--batch", "many"], "--batch many: expected auto or a number of rows"),
    ):
        done = bench(*arguments)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
