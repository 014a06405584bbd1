"""TRL's SFTTrainer with PEFT: LoRA on all linear layers, rows of one length. Run by bench/side_by_side.py."""

import tempfile

from datasets import Dataset
from peft import LoraConfig
from timing import GPU, TARGETS, WARM_UP_STEPS, Clock, answer, arguments, bare_tokenizer, random_model, random_rows
from trl import SFTConfig, SFTTrainer


def main() -> None:
    asked = arguments(
        checkpointing=(int, 1, "1: activation checkpointing, TRL's default"),
        liger=(int, 0, "1: Liger kernels"),
        compile=(int, 0, "1: torch.compile of the model"),
    )
    model = random_model(asked.config)
    vocabulary = model.config.vocab_size
    clock = Clock()
    trainer = SFTTrainer(
        model=model,
        train_dataset=Dataset.from_dict({"input_ids": random_rows(asked, vocabulary)}),
        processing_class=bare_tokenizer(vocabulary),
        callbacks=[clock],
        peft_config=LoraConfig(
            r=asked.rank, lora_alpha=2 * asked.rank, lora_dropout=0.0, target_modules=TARGETS, task_type="CAUSAL_LM"
        ),
        args=SFTConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=asked.batch,
            max_steps=WARM_UP_STEPS + asked.steps,
            max_length=asked.length,
            bf16=GPU,
            gradient_checkpointing=bool(asked.checkpointing),
            gradient_checkpointing_kwargs={"use_reentrant": False},
            use_liger_kernel=bool(asked.liger),
            torch_compile=bool(asked.compile),
            report_to="none",
            save_strategy="no",
            logging_steps=10_000,
            disable_tqdm=True,
        ),
    )
    trainer.train()
    settings = {"checkpointing": asked.checkpointing, "liger": asked.liger, "compile": asked.compile}
    answer(asked, clock, "TRL", settings)


if __name__ == "__main__":
    main()
