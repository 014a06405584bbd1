"""Rows a CPU second of ``seatrial data prepare`` on raw Glaive-like rows, from file to files, in one process.

CPU seconds, because a rate per core is asked for and other programs disturb them less than wall time.

python bench/data_prepare.py --rows 200000 --out results/data-prepare_MACHINE_DATE.json
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from seatrial.data.convert import Recipe
from seatrial.data.prepare import prepare
from seatrial.provenance import provenance
from seatrial.records import Measurement

WORDS = ("account", "balance", "booking", "city", "currency", "date", "event", "flight", "hotel", "movie", "music")
SPEECH = "Of course, I can help you with that. Here is what I found out about it, in as many words as it usually takes:"


def glaive_like_row(rng: random.Random, prompts: int) -> dict[str, str]:
    """Four to ten turns, 1.4 kB; of ten rows four have no function, five one and one two, half of all rows call.

    The shares are those of 200 real rows. Functions are drawn out of ``prompts``.
    """
    number = rng.randrange(prompts)
    functions = rng.choice((0, 0, 0, 0, 1, 1, 1, 1, 1, 2))
    declared = [declaration(f"{verb}_{WORDS[number % len(WORDS)]}_{number}") for verb in ("get", "find")[:functions]]
    head = "with access to the following functions. Use them if required -\n" if declared else "with no functions."
    turns = [f"USER: Hi, can you look for {rng.choice(WORDS)} number {rng.random()} for me, please?"]
    if declared and rng.random() < 0.83:
        arguments = json.dumps({"text": f"{rng.choice(WORDS)} {rng.random()}", "count": rng.randrange(100)})
        call = f'{{"name": "{declared[0]["name"]}", "arguments": \'{arguments}\'}}'
        turns += [f"ASSISTANT: <functioncall> {call} <|endoftext|>"]
        turns += [f'FUNCTION RESPONSE: {{"results": ["{rng.random()}", "{rng.random()}"]}}']
    for _ in range(1 if declared else 4):
        turns += [f"ASSISTANT: {SPEECH} {rng.random()}. Would you like to know more? <|endoftext|>"]
        turns += [f"USER: Yes, please tell me about {rng.choice(WORDS)} {rng.random()}, too."]
    turns += [f"ASSISTANT: {SPEECH} <|endoftext|>"]
    system = "\n\n".join([f"SYSTEM: You are a helpful assistant {head}", *(json.dumps(d, indent=4) for d in declared)])
    return {"system": system, "chat": "\n\n\n".join(turns)}


def declaration(name: str) -> dict[str, object]:
    text = {"type": "string", "description": "The text to look for"}
    count = {"type": "integer", "description": "How many results to return"}
    parameters = {"type": "object", "properties": {"text": text, "count": count}, "required": ["text"]}
    return {"name": name, "description": f"Get the {name} for a user of the service", "parameters": parameters}


def measure(rows: int, prompts: int, repeats: int) -> list[float]:
    """Rows a CPU second of each repeat."""
    rng = random.Random(0)
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        with file.open("w") as lines:
            for _ in range(rows):
                lines.write(json.dumps(glaive_like_row(rng, prompts)) + "\n")
        for repeat in range(repeats):
            start = time.process_time()
            manifest = prepare(file, Path(folder) / f"out{repeat}", Recipe("glaive"), workers=1)
            rates.append(rows / (time.process_time() - start))
            if manifest["accepted"] != rows:
                raise SystemExit(f"only {manifest['accepted']} of {rows} rows were accepted: {manifest['rejected']}")
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    measurements = []
    for name, prompts in (("repeated_tools", 1000), ("distinct_tools", 10**9)):
        rates = sorted(measure(options.rows, prompts, options.repeats))
        measurements.append(
            Measurement(
                name=f"data_prepare_{name}",
                value=statistics.median(rates),
                unit="rows per CPU second",
                n=len(rates),
                spread=(rates[-1] - rates[0]) / 2,
                where="one process",
            ).model_dump()
        )
        print(measurements[-1])
    result = {"rows": options.rows, "measurements": measurements, "provenance": provenance()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
