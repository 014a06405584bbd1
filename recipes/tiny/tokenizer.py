"""Make the tiny base's tokenizer and config: ``python recipes/tiny/tokenizer.py TEXTS_DIR OUT_DIR``."""

import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from seatrial.data.conversation import read_records
from seatrial.data.template import shipped_template

VOCABULARY = 2048
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# A word is cut the same way after a space as after a quote, because the space is a token of its own: what has to be
# copied from a sentence into JSON is then the same tokens in both places. Digits and line ends stand alone, so that no
# token reaches over the border of a turn; other punctuation may merge.
PIECES = Regex(r"\d|[^\W\d_]+|_|\n|[^\w\n]+")


def main(texts: Path, out: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    lines = (message.content for record in read_records(texts) for message in record.messages)
    tokenizer.train_from_iterator(lines, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = shipped_template("tiny").source
    fast.save_pretrained(out)
    LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        architectures=["LlamaForCausalLM"],
    ).save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
