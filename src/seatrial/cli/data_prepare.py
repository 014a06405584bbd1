"""seatrial data prepare"""

from pathlib import Path
from typing import Annotated

import typer

SOURCES = "auto, glaive, xlam, hermes, toolace, openai or sharegpt"


def prepare(
    input_name: Annotated[str, typer.Option("--in", help="file, folder, or name of a dataset on the hub")],
    out: Annotated[Path, typer.Option(help="directory for records.jsonl, rejections.jsonl and manifest.json")],
    source: Annotated[str, typer.Option(help=f"format of the rows: {SOURCES}")] = "auto",
    files: Annotated[str, typer.Option(help="which files of a folder or dataset, such as '*multiturn*'")] = "*",
    revision: Annotated[str | None, typer.Option(help="commit, tag or branch of a dataset on the hub")] = None,
    dedup: Annotated[str, typer.Option(help="drop duplicate rows: none, exact or near")] = "none",
    held_out_tools: Annotated[float, typer.Option(help="share of tools kept for held_out.jsonl", min=0, max=1)] = 0.0,
    benchmark: Annotated[Path | None, typer.Option(help="drop rows that overlap with this benchmark file")] = None,
    mask_names: Annotated[float, typer.Option(help="share of rows with masked names", min=0, max=1)] = 0.0,
    negatives: Annotated[float, typer.Option(help="rows without a call to add, per row with one", min=0, max=1)] = 0.0,
    distractors: Annotated[int, typer.Option(help="tools to add to every row with a call", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="decides what is held out, masked and added")] = 0,
    min_yield: Annotated[float | None, typer.Option(help="floor for the share of readable rows")] = None,
    min_call_share: Annotated[float | None, typer.Option(help="floor for the share of turns that call")] = None,
    workers: Annotated[int | None, typer.Option(help="processes; one a core by default", min=1)] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the records that --out holds")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the manifest to stdout")] = False,
) -> None:
    """Convert rows of a known format into validated seatrial records."""
    import json

    from seatrial.data.augment import Augmentation
    from seatrial.data.convert import Recipe
    from seatrial.data.dedup import Dedup
    from seatrial.data.fetch import dataset_files, is_hub_name
    from seatrial.data.prepare import prepare as run
    from seatrial.data.sources import CONVERTERS
    from seatrial.errors import UsageError

    if source not in CONVERTERS:
        raise UsageError(f"--source {source}: unknown format; choose {SOURCES}")
    if dedup not in list(Dedup):
        raise UsageError(f"--dedup {dedup}: choose {', '.join(Dedup)}")
    path = dataset_files(input_name, revision=revision) if is_hub_name(input_name) else Path(input_name)
    manifest = run(
        path,
        out,
        Recipe(source, Dedup(dedup), held_out_tools, benchmark, seed),
        augmentation=Augmentation(mask_names, negatives, distractors)
        if mask_names or negatives or distractors
        else None,
        pattern=files,
        min_yield=min_yield,
        min_call_share=min_call_share,
        workers=workers,
        force=force,
    )
    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False))
    else:
        _show(manifest, out)


def _show(manifest: dict[str, object], out: Path) -> None:
    """The counts for a person, on stderr."""
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True, highlight=False)
    console.print(
        f"{manifest['accepted']:,} of {manifest['rows']:,} rows are in {out}; "
        f"{manifest['share_with_call']:.1%} of the assistant's turns hold a call."
    )
    for title, counts in (("rejected", manifest["rejected"]), ("repaired", manifest["repairs"])):
        if isinstance(counts, dict) and counts:
            table = Table(title, "rows")
            for reason, count in counts.items():
                table.add_row(reason, f"{count:,}")
            console.print(table)
