"""A checkpoint, whose tensors lie in pieces, as a directory that transformers (or PEFT) loads.

Tensors pass through in blocks of rows, so that memory does not grow with the model; nothing here needs a GPU.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from torch import Tensor
from transformers import PreTrainedModel

from seatrial.dist.checkpoint.layout import Box, header
from seatrial.dist.checkpoint.manifest import Manifest, Piece, step_of
from seatrial.dist.checkpoint.place import storage_of
from seatrial.dist.checkpoint.storage import Directory, Storage
from seatrial.dist.checkpoint.work import verify
from seatrial.errors import IntegrityError, UsageError
from seatrial.model.adapter import CONFIG, WEIGHTS
from seatrial.model.full import group_layers, weights_by_layer
from seatrial.model.load import DTYPES, copy_tokenizer, empty_for_training
from seatrial.records import JsonObject
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings

BLOCK_BYTES = 64 * 2**20
"""Of rows in memory at a time."""

SHARD_SIZE = "5GB"
"""Of an output file; what the Hugging Face hub recommends."""


@dataclass(frozen=True)
class Rows:
    """Some rows of a stored tensor, which are a tensor of the plain model. ``shape`` is that of the latter."""

    stored: str
    first: int
    shape: tuple[int, ...]


def consolidate(run: RunDir, out: Path, *, step: int | None = None) -> JsonObject:
    """Write the newest checkpoint, or that of ``step``, to ``out``; returns its kind, step, tensors and bytes.

    Every byte of it is verified first.

    Raises:
        UsageError: no such checkpoint, or ``out`` is in use.
        IntegrityError: the checkpoint is damaged.
    """
    settings = TrainSettings.model_validate(run.read_settings())
    storage = storage_of(run)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out {out} is not empty; choose another")
    names = [name for name in storage.committed() if step is None or step_of(name) == step]
    if not names:
        raise UsageError(f"{storage.label}: no checkpoint" + (f" of step {step}" if step is not None else " yet"))
    manifest = verify(storage, names[0])
    temporary = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    if settings.lora is not None:
        written = _write_adapter(storage, manifest, temporary)
    else:
        written = _write_model(storage, manifest, settings, temporary)
    copy_tokenizer(settings, temporary)
    if out.exists():
        out.rmdir()
    temporary.rename(out)
    return {"kind": "adapter" if settings.lora is not None else "model", "step": manifest.step, **written}


def _write_adapter(storage: Storage, manifest: Manifest, folder: Path) -> JsonObject:
    """An adapter lies in the checkpoint as PEFT wants it."""
    for name in (WEIGHTS, CONFIG):
        with storage.open(f"{manifest.name}/adapter/{name}") as source, (folder / name).open("wb") as target:
            shutil.copyfileobj(source, target)
    weights = manifest.files[f"adapter/{WEIGHTS}"]
    return {"tensors": len(weights.pieces), "bytes": weights.size}


def _write_model(storage: Storage, manifest: Manifest, settings: TrainSettings, folder: Path) -> JsonObject:
    dtype = DTYPES[settings.model.dtype]
    model = empty_for_training(settings.model)
    group_layers(model, fp8="tensor" if settings.model.base == "fp8" else None)
    plain = plain_tensors(model)
    shapes = {name: torch.empty(rows.shape, dtype=dtype, device="meta") for name, rows in plain.items()}
    split = split_torch_state_dict_into_shards(shapes, max_shard_size=SHARD_SIZE)
    total = 0
    with PieceReader(storage, manifest) as reader:
        for file, names in split.filename_to_tensors.items():
            boxes = [Box(name, (), plain[name].shape, dtype, name) for name in names]
            total += sum(box.size for box in boxes)
            with Directory(folder).create(file) as target:
                target.write(header(boxes, with_offsets=False))
                for name in names:
                    for block in reader.blocks(plain[name]):
                        target.write(block.to(dtype).contiguous().view(torch.uint8).numpy().data)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    model.config.dtype = dtype
    model.config.save_pretrained(folder)
    return {"tensors": len(plain), "bytes": total}


def plain_tensors(model: PreTrainedModel) -> dict[str, Rows]:
    """Of what stored rows each tensor of the plain model consists; ``model`` is grouped, and on the meta device."""
    stored = {name: torch.empty(parameter.shape, device="meta") for name, parameter in model.named_parameters()}
    names = {id(tensor): name for name, tensor in stored.items()}
    plain = {}
    for name, tensor in weights_by_layer(model, stored).items():
        whole = tensor if tensor._base is None else tensor._base
        row = whole.numel() // whole.shape[0]
        plain[name] = Rows(f"weight/{names[id(whole)]}", tensor.storage_offset() // row, tuple(tensor.shape))
    return plain


class PieceReader(ExitStack):
    """Reads rows of the tensors of one checkpoint, from whatever pieces they lie in. Pieces are whole rows."""

    def __init__(self, storage: Storage, manifest: Manifest) -> None:
        super().__init__()
        self._storage, self._manifest = storage, manifest
        self._open: dict[str, BinaryIO] = {}
        self._pieces: dict[str, list[tuple[str, Piece]]] = {}
        for name, file in manifest.files.items():
            for piece in file.pieces:
                self._pieces.setdefault(piece.tensor, []).append((name, piece))

    def blocks(self, rows: Rows) -> Iterator[Tensor]:
        """The rows asked for, in order, some at a time, in the type they are stored in.

        Raises:
            IntegrityError: the checkpoint does not hold them.
        """
        at, end = rows.first, rows.first + rows.shape[0]
        pieces = sorted(self._pieces.get(rows.stored, ()), key=lambda held: held[1].offsets)
        for name, piece in pieces:
            first, last = piece.offsets[0], piece.offsets[0] + piece.shape[0]
            if first <= at < last:
                yield from self._rows(name, piece, at - first, min(end, last) - first)
                at = min(end, last)
        if at != end:
            raise IntegrityError(f"{self._storage.label}/{self._manifest.name}: holds no row {at} of {rows.stored}")

    def _rows(self, name: str, piece: Piece, first: int, last: int) -> Iterator[Tensor]:
        dtype: torch.dtype = getattr(torch, self._manifest.tensors[piece.tensor].dtype)
        row_bytes = torch.Size(piece.shape[1:]).numel() * dtype.itemsize
        count = max(1, BLOCK_BYTES // row_bytes)
        file = self._file(name)
        for begin in range(first, last, count):
            rows = min(count, last - begin)
            file.seek(piece.begin + begin * row_bytes)
            content = bytearray(file.read(rows * row_bytes))
            yield torch.frombuffer(content, dtype=dtype).view(rows, *piece.shape[1:])

    def _file(self, name: str) -> BinaryIO:
        if name not in self._open:
            self._open[name] = self.enter_context(self._storage.open(f"{self._manifest.name}/{name}"))
        return self._open[name]
