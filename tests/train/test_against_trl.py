"""The same model, rows, order and settings give the losses of TRL's trainer."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from seatrial.data.conversation import Conversation, encode, template_messages, template_tools
from seatrial.data.dataset import load_rows
from seatrial.data.pack import PackStream
from seatrial.data.render import Rendered, TrainOn, load_renderer
from seatrial.data.synthetic import Split, corpus
from seatrial.model.adapter import adapter_parameters
from seatrial.model.load import TINY
from seatrial.model.lora import apply_lora
from seatrial.rundir import RunDir
from seatrial.settings import LoraSettings, TrainSettings
from seatrial.train.loop import train
from tests.small import settings_for

STEPS, ROWS_A_STEP = 20, 4
SHORTEST, LONGEST = 201, 400


@pytest.mark.parametrize("method", ["full", "lora"])
def test_losses_of_twenty_steps(tmp_path: Path, method: str) -> None:
    """Rows are longer than half a pack, so a pack holds one and a step of four packs is TRL's batch of four."""
    trl = pytest.importorskip("trl", reason="TRL is a test dependency: pip install -e '.[test]'")
    datasets = pytest.importorskip("datasets")
    rows = rows_longer_than_half_a_pack(STEPS * ROWS_A_STEP)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "records.jsonl").write_bytes(b"".join(map(encode, rows)))
    settings = settings_for(
        tmp_path,
        model={"path": str(TINY)},
        data={"length": LONGEST},
        lora={"rank": 4, "alpha": 8} if method == "lora" else None,
        optimizer={"learning_rate": 1e-3, "steps": STEPS, "packs_per_step": ROWS_A_STEP},
        checkpoint={"every_steps": 100},
    )
    train(settings)
    ours = [record["loss"] for record in RunDir(settings.run.dir).read_metrics()]

    examples = [
        {"messages": template_messages(row.messages), "tools": json.dumps(template_tools(row.tools))}
        for row in (rows[index] for index in our_order(settings))
    ]
    trainer = trl.SFTTrainer(
        model=their_model(settings),
        processing_class=AutoTokenizer.from_pretrained(TINY),
        train_dataset=datasets.Dataset.from_list(examples, on_mixed_types="use_json"),
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "trl"),
            per_device_train_batch_size=ROWS_A_STEP,
            max_steps=STEPS,
            learning_rate=1e-3,
            lr_scheduler_type="linear",
            weight_decay=0.0,
            max_grad_norm=1.0,
            optim="adamw_torch",
            assistant_only_loss=True,
            packing=False,
            max_length=None,
            train_sampling_strategy="sequential",
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(ours) == len(theirs) == STEPS
    assert ours[-1] < ours[0]
    assert ours == pytest.approx(theirs, abs=1e-4)


def rows_longer_than_half_a_pack(count: int) -> list[Conversation]:
    renderer = load_renderer(TINY)
    kept = []
    for row in corpus(20 * count, seed=3, split=Split.TRAIN, masked=0.0):
        rendered = renderer.render(row)
        if isinstance(rendered, Rendered) and SHORTEST <= len(rendered.ids) <= LONGEST:
            kept.append(row)
    return kept[:count]


def our_order(settings: TrainSettings) -> list[int]:
    data = load_rows(settings.data.train, load_renderer(TINY), train_on=TrainOn.ALL, length=LONGEST, over_long="raise")
    stream = PackStream(data.lengths_N, LONGEST, settings.run.seed, ROWS_A_STEP)
    packs = [pack for step in range(STEPS) for pack in stream.step_packs(step)]
    assert all(len(pack) == 1 for pack in packs)
    return [pack[0] for pack in packs]


def their_model(settings: TrainSettings) -> torch.nn.Module:
    """The base in float32; with LoRA, under PEFT's own layers, which start from the adapter that ours start from."""
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    if settings.lora is None:
        return model
    peft = pytest.importorskip("peft")
    theirs = peft.get_peft_model(model, peft_config(settings.lora))
    ours = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    apply_lora(
        ours,
        targets=settings.lora.targets,
        rank=settings.lora.rank,
        alpha=settings.lora.alpha,
        seed=settings.run.seed,
    )
    parameters = dict(theirs.named_parameters())
    for name, parameter in adapter_parameters(ours).items():
        layer, _, half = name.rpartition(".")
        target = f"base_model.model.{layer}.lora_{'A' if half == 'a_RI' else 'B'}.default.weight"
        parameters[target].data.copy_(parameter)
    assert isinstance(theirs, torch.nn.Module)
    return theirs


def peft_config(lora: LoraSettings) -> object:
    from peft import LoraConfig

    return LoraConfig(
        r=lora.rank,
        lora_alpha=int(lora.alpha),
        lora_dropout=0.0,
        target_modules=list(lora.targets),
        task_type="CAUSAL_LM",
    )
