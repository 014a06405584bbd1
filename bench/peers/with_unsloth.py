"""Unsloth with TRL's trainer: LoRA or QLoRA on all linear layers. Run by bench/side_by_side.py.

Unsloth loads from disk alone, so the random model is written there once, beside the config.
"""

import os
import tempfile

os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")

from unsloth import FastLanguageModel  # isort: skip  # it patches what is imported after it

import torch
from datasets import Dataset
from timing import TARGETS, WARM_UP_STEPS, Clock, answer, arguments, bare_tokenizer, random_model, random_rows
from trl import SFTConfig, SFTTrainer


def main() -> None:
    asked = arguments(
        checkpointing=(str, "0", "0, 1, or unsloth: its own"),
        bits=(int, 16, "16, or 4: NF4 with double quantisation"),
    )
    weights = asked.config / "with-weights"
    if not (weights / "tokenizer.json").exists():
        model = random_model(asked.config)
        model.save_pretrained(weights)
        bare_tokenizer(model.config.vocab_size).save_pretrained(weights)
        del model
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model, tokenizer = FastLanguageModel.from_pretrained(
        str(weights),
        max_seq_length=asked.length,
        dtype=torch.bfloat16,
        load_in_4bit=asked.bits == 4,
        local_files_only=True,
    )
    model = FastLanguageModel.get_peft_model(
        model,
        r=asked.rank,
        lora_alpha=2 * asked.rank,
        lora_dropout=0,
        bias="none",
        target_modules=TARGETS,
        use_gradient_checkpointing={"0": False, "1": True, "unsloth": "unsloth"}[asked.checkpointing],
    )
    rows = random_rows(asked, model.config.vocab_size)
    clock = Clock()
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"input_ids": rows, "labels": rows}),
        callbacks=[clock],
        args=SFTConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=asked.batch,
            gradient_accumulation_steps=1,
            max_steps=WARM_UP_STEPS + asked.steps,
            max_length=asked.length,
            bf16=True,
            report_to="none",
            save_strategy="no",
            logging_steps=10_000,
            disable_tqdm=True,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
    )
    trainer.train()
    answer(asked, clock, "Unsloth", {"bits": asked.bits, "checkpointing": asked.checkpointing})


if __name__ == "__main__":
    main()
