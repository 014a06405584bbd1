"""seatrial against TRL and Unsloth: one GPU, one run, the same work; a JSON file and a plot.

    python bench/side_by_side.py --out results/side_by_side [--only seatrial-fp8,unsloth-bf16] [--runs 3]

Work: random weights in the shape of Llama-3.1-8B, LoRA of rank 64 on all linear layers, rows of 4,096 random tokens
with loss on every token. Each contender runs in a process of its own, in turn, --runs times over; the median counts.
Contenders whose package is missing are left out and named. Packages: bench/peers/README.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Contender:
    """``needs``: the package without which it cannot run; ``script`` is in bench/peers, or empty: seatrial itself."""

    name: str
    label: str
    needs: str
    script: str
    options: tuple[str, ...]


CONTENDERS = (
    Contender("seatrial-fp8", "seatrial, fp8 base", "seatrial", "", ("--base", "fp8")),
    Contender("seatrial-bf16", "seatrial, bf16 base", "seatrial", "", ("--base", "bf16")),
    Contender("seatrial-nf4", "seatrial, nf4 base", "bitsandbytes", "", ("--base", "nf4")),
    Contender("unsloth-bf16", "Unsloth, bf16", "unsloth", "with_unsloth.py", ("--checkpointing", "0")),
    Contender(
        "unsloth-4bit", "Unsloth, 4 bit", "unsloth", "with_unsloth.py", ("--bits", "4", "--checkpointing", "unsloth")
    ),
    Contender("trl-liger", "TRL + Liger", "liger_kernel", "with_trl.py", ("--liger", "1", "--checkpointing", "0")),
    Contender("trl", "TRL, defaults", "trl", "with_trl.py", ()),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory for side_by_side.json, .png and raw answers")
    parser.add_argument("--only", default="", help=f"some of {', '.join(c.name for c in CONTENDERS)}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=2, help="rows in a micro-batch, for everyone")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--unsloth-path", default="", help="folder that Unsloth and what it needs are installed in")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)

    from seatrial.model.shapes import shape
    from seatrial.provenance import provenance

    config = asked.out / "model"
    shape(asked.shape).save_pretrained(config)
    wanted = asked.only.split(",") if asked.only else [contender.name for contender in CONTENDERS]
    if unknown := set(wanted) - {contender.name for contender in CONTENDERS}:
        parser.error(f"--only: {', '.join(sorted(unknown))}")
    left_out: dict[str, str] = {}
    answers: dict[str, list[dict[str, object]]] = {}
    # Everyone once, then everyone again: whatever drifts (heat, clocks) then meets all of them.
    for run in range(asked.runs):
        for contender in CONTENDERS:
            if contender.name in wanted and contender.name not in left_out:
                try:
                    answers.setdefault(contender.name, []).append(_run(contender, asked, config, run))
                except RuntimeError as error:
                    left_out[contender.name] = str(error)
    summary = {
        "work": {name: getattr(asked, name) for name in ("shape", "length", "batch", "rank", "steps", "runs")},
        "results": [_summary(c, answers[c.name]) for c in CONTENDERS if answers.get(c.name)],
        "left_out": left_out,
        "provenance": provenance(),
    }
    (asked.out / "side_by_side.json").write_text(json.dumps(summary, indent=2) + "\n")
    for result in summary["results"]:
        memory = result["peak_memory_gib"]
        print(f"{result['label']:22} {result['tokens_per_s_per_gpu']:>8,.0f} tokens/s {memory:6.1f} GiB")
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    if summary["results"]:
        plot(summary, asked.out / "side_by_side.png")


def _run(contender: Contender, asked: argparse.Namespace, config: Path, run: int) -> dict[str, object]:
    answer = (asked.out / f"{contender.name}-{run}.json").absolute()
    work = ["--length", asked.length, "--batch", asked.batch, "--rank", asked.rank, "--steps", asked.steps]
    command: Sequence[object] = (
        [sys.executable, HERE / "peers" / contender.script, "--config", config, *work]
        if contender.script
        else [sys.executable, "-m", "seatrial", "bench", "train", "--shape", asked.shape, *work]
    )
    environment = dict(os.environ)
    if contender.needs == "unsloth" and asked.unsloth_path:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [asked.unsloth_path, environment.get("PYTHONPATH")]))
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({contender.needs!r}) is None)"
    if subprocess.run([sys.executable, "-c", probe], env=environment, check=False).returncode:
        raise RuntimeError(f"{contender.needs} is not installed")
    print(f"run {run + 1}: {contender.label}", flush=True)
    words = [str(word) for word in (*command, *contender.options, "--json", answer)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    (asked.out / f"{contender.name}-{run}.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise RuntimeError(f"ended with {done.returncode}: {last}; see {contender.name}-{run}.log")
    found: dict[str, object] = json.loads(answer.read_text())
    return found


def _summary(contender: Contender, answers: Sequence[dict[str, object]]) -> dict[str, object]:
    rates = [float(answer["tokens_per_s_per_gpu"]) for answer in answers]  # type: ignore[arg-type]
    return {
        "name": contender.name,
        "label": contender.label,
        "tokens_per_s_per_gpu": statistics.median(rates),
        "runs": rates,
        "peak_memory_gib": max(float(answer["peak_memory_gib"] or 0) for answer in answers),  # type: ignore[arg-type]
        "options": list(contender.options),
        "device": answers[0]["device"],
    }


def plot(summary: dict[str, object], file: Path) -> None:
    """Bars of the medians, with the runs as dots and the peak memory beside them."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    results = sorted(summary["results"], key=lambda result: result["tokens_per_s_per_gpu"])
    work = summary["work"]
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(results) + 1.4), layout="constrained")
    ours = ["#0b5d7a" if result["name"].startswith("seatrial") else "#b9c4c9" for result in results]
    axes.barh([result["label"] for result in results], [r["tokens_per_s_per_gpu"] for r in results], color=ours)
    for place, result in enumerate(results):
        axes.plot(result["runs"], [place] * len(result["runs"]), ".", color="black", markersize=4)
        said = f"  {result['tokens_per_s_per_gpu']:,.0f}   ({result['peak_memory_gib']:.0f} GiB)"
        axes.text(max(result["runs"]), place, said, va="center")
    axes.set_xlim(0, 1.3 * max(max(result["runs"]) for result in results))
    axes.set_xlabel("tokens/s per GPU (peak memory)")
    axes.set_title(
        f"{work['shape']}, LoRA r={work['rank']}, rows of {work['length']:,} x {work['batch']}, {results[0]['device']}",
        fontsize=10,
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
