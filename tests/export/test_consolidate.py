"""A checkpoint in pieces becomes the very model that the run itself writes."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from seatrial.errors import IntegrityError, UsageError
from seatrial.export import consolidate as module
from seatrial.export.consolidate import consolidate
from seatrial.rundir import RunDir
from seatrial.train.loop import train
from tests.small import settings_for, torchrun, write_config, write_model, write_rows


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A model trained whole, in bfloat16 at the end, sharded over two processes."""
    folder = tmp_path_factory.mktemp("two")
    write_model(folder / "model")
    write_rows(folder / "data")
    settings = settings_for(
        folder,
        lora=None,
        model={"dtype": "bfloat16", "compile": "off"},
        optimizer={"steps": 2},
        parallel={"plan": "shard"},
        checkpoint={"every_steps": 1},
    )
    done = torchrun(write_config(settings, folder / "two.yaml"), 2)
    assert done.returncode == 0, done.stderr[-2000:]
    return RunDir(settings.run.dir)


def test_it_is_the_model_that_the_run_wrote(two: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)  # many blocks a tensor
    done = consolidate(two, tmp_path / "out")
    assert done == {"kind": "model", "step": 2, "tensors": done["tensors"], "bytes": done["bytes"]}
    expected, found = load_file(two.model / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert done["bytes"] == sum(tensor.nbytes for tensor in expected.values())


def test_transformers_loads_it_in_shards(two: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD_SIZE", "100KB")
    consolidate(two, tmp_path / "out")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    model, told = cast(Any, AutoModelForCausalLM).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert model.dtype == torch.bfloat16
    expected = AutoModelForCausalLM.from_pretrained(two.model).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


def test_an_adapter_is_what_peft_loads(harbour: Path, tmp_path: Path) -> None:
    """PEFT on the checkpoint's own folder, and on what is made of it, computes what the finished run computes."""
    from peft import PeftModel

    settings = settings_for(harbour, optimizer={"steps": 3})
    train(settings)
    run = RunDir(settings.run.dir)
    assert consolidate(run, tmp_path / "out", step=3)["kind"] == "adapter"
    ids_BT = torch.arange(40)[None]
    logits = []
    for folder in (run.adapter, run.checkpoints / "step-00000003" / "adapter", tmp_path / "out"):
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(harbour / "model"), str(folder))
        with torch.no_grad():
            logits.append(model.eval()(input_ids=ids_BT).logits)
    base = AutoModelForCausalLM.from_pretrained(harbour / "model").eval()(input_ids=ids_BT).logits
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])
    assert not torch.equal(logits[0], base)


def test_what_cannot_be_consolidated_is_said(two: RunDir, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no checkpoint of step 7"):
        consolidate(two, tmp_path / "out", step=7)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not empty"):
        consolidate(two, tmp_path / "used")
    shard = next((two.checkpoints / "step-00000002").glob("rank-*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        with pytest.raises(IntegrityError, match="differs from what the manifest states"):
            consolidate(two, tmp_path / "out")
    finally:
        shard.write_bytes(content)
    assert not (tmp_path / "out").exists()
