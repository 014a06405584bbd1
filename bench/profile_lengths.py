"""Measure how long real function-calling rows are and how much of them is trained; writes the profile bench uses.

    python bench/profile_lengths.py RECORDS.jsonl [RECORDS.jsonl ...] > src/seatrial/assets/lengths/tool-calls.json

RECORDS are what `seatrial data prepare` writes. Only quantiles leave this script. Lengths are bytes of the rendered
text divided by BYTES_A_TOKEN, so that they do not depend on the tokenizer at hand.
"""

import json
import sys
from pathlib import Path

import numpy as np

from seatrial.data.dataset import load_rows
from seatrial.data.render import TINY, TrainOn, load_renderer

BYTES_A_TOKEN = 4.0
"""English text and JSON under tokenizers with 128k to 152k entries: the rule of thumb of four bytes a token."""
POINTS = 41


def main(files: list[Path]) -> None:
    renderer = load_renderer(TINY)
    lengths, shares = [], []
    for file in files:
        for row in load_rows(file, renderer, train_on=TrainOn.ALL, length=1 << 20, over_long="drop").rows:
            lengths.append(len(renderer.tokenizer.decode(row.ids).encode()) / BYTES_A_TOKEN)
            shares.append(float(row.trained.mean()))
    at = np.linspace(0, 1, POINTS)
    profile = {
        "lengths_tokens": [round(x) for x in np.quantile(lengths, at)],
        "trained_share": [round(x, 4) for x in np.quantile(shares, at)],
        "rows": len(lengths),
        "bytes_a_token": BYTES_A_TOKEN,
        "source": [file.parent.name if file.name == "records.jsonl" else file.stem for file in files],
        "made_by": "bench/profile_lengths.py",
    }
    print(json.dumps(profile, indent=1))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
