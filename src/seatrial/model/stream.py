"""Weights on their way to where they live: a model built on the meta device is filled, each process with its part.

The structure comes first: adapters, number formats and sharding are laid over a model that has no data. Then every
process reads the rows it keeps, in small pieces, quantises them if that is how they are kept, and puts them in their
place. No process ever holds more of the model than its part and the pieces under way, neither on the host nor on
the GPU. Scales of quantised rows belong to single rows, so quantised pieces are the pieces of the quantised whole.

Shapes: N rows of a piece, O output width, I input width.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import PreTrainedModel

from seatrial.errors import IntegrityError
from seatrial.hardware import GB, usable_cpus
from seatrial.model.fp8 import quantise_rows
from seatrial.model.full import TrainedLinear
from seatrial.model.lora import AdaptedLinear, adapted_layers, generator, initial_a
from seatrial.model.nf4 import nf4_row_scales, quantise_nf4
from seatrial.model.stored import StoredTensor, shortened, stored_tensors

T = TypeVar("T")

PIECE_BYTES = 8 * 2**20
"""Large enough to keep a disk busy, small enough that all pieces under way take less than a layer of an 8B model."""

MOST_READERS = 8
"""Threads that fill at once, one for each CPU up to this: a choice. Each keeps a request under way, which disks and
network file systems want several of, and quantises on CPUs. Memory gains nothing from them: out of the page cache one
thread read 2.1 GB at 13 to 19 GB/s on 2 cores of an EPYC, and eight at 6 to 9."""

# Buffers that older checkpoints store and models now compute.
_COMPUTED = re.compile(r"rotary_emb\.inv_freq$|\.position_ids$")


@dataclass(frozen=True)
class Filled:
    """What filling took: bytes read from files by this process, and seconds."""

    read_bytes: int
    seconds: float

    @property
    def gb_per_s(self) -> float:
        return self.read_bytes / GB / self.seconds


@dataclass(frozen=True, eq=False)
class Part:
    """Rows ``first`` to ``last`` of one tensor of the plain model: what this process keeps of it.

    ``put(row, rows_NI)`` takes some of them, from ``row`` on, on the model's device.
    """

    shape: tuple[int, ...]
    first: int
    last: int
    put: Callable[[int, Tensor], None]


def fill_pretrained(model: PreTrainedModel, directory: Path, *, device: torch.device, seed: int) -> Filled:
    """Give a model on the meta device memory on ``device`` and the weights of ``directory``; adapters start anew.

    The model may be adapted, quantised and sharded (FSDP2). No communication: each process reads what it keeps.

    Raises:
        IntegrityError: a tensor is missing, left over, of another shape or not as long as its file says.
        UsageError: no safetensors files.
    """
    began = time.monotonic()
    stored = {name: tensor for name, tensor in stored_tensors(directory).items() if not _COMPUTED.search(name)}
    parts = _allocate(model, device)
    also = _other_names(model)
    _refuse_other_tensors(directory, stored, parts, also)
    sources = {name: name if name in stored else next(n for n in also[name] if n in stored) for name in parts}
    pieces = [piece for name, part in parts.items() for piece in _pieces(stored[sources[name]], part)]
    pieces.sort(key=lambda piece: (piece.stored.file, piece.stored.start, piece.first))
    _run(_reader(pieces, device), pieces, device)
    for name, part in parts.items():
        for again in (n for n in also.get(name, ()) if n in stored and n != sources[name]):
            _refuse_untied(directory, sources[name], again, stored, part)
    _start_adapters(model, seed, device)
    return Filled(sum(piece.bytes for piece in pieces), time.monotonic() - began)


def fill_random(model: PreTrainedModel, *, device: torch.device, seed: int) -> Filled:
    """The same with random weights: each tensor drawn on ``device`` from seed and name, whatever the sharding.

    Matrices are normal with the configuration's ``initializer_range``, norms are one and biases zero, as
    transformers initialises decoders.
    """
    began = time.monotonic()
    deviation = float(getattr(model.config, "initializer_range", 0.02))
    dtype = _dtype(model)
    for name, part in _allocate(model, device).items():
        if len(part.shape) == 1:
            whole = torch.full(part.shape, 0.0 if name.endswith("bias") else 1.0, dtype=dtype, device=device)
        else:
            whole = torch.empty(part.shape, dtype=dtype, device=device)
            whole.normal_(0.0, deviation, generator=generator(seed, name, device))
        if part.last > part.first:
            part.put(part.first, whole[part.first : part.last])
    _start_adapters(model, seed, device)
    return Filled(0, time.monotonic() - began)


def _allocate(model: PreTrainedModel, device: torch.device) -> dict[str, Part]:
    """Memory for every parameter, and the values of every buffer. Returns the parts that are to be filled, by name."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) not in made:
                made[id(parameter)] = nn.Parameter(
                    torch.empty_like(parameter, device=device), requires_grad=parameter.requires_grad
                )
            setattr(module, name, made[id(parameter)])
        if any(buffer.is_meta for buffer in module.buffers(recurse=False)):
            # transformers' models can compute all their buffers again; it does so itself when it loads a model.
            module.to_empty(device="cpu", recurse=False)
            for _, buffer in module.named_buffers(recurse=False):
                buffer.fill_(math.nan)
            model._init_weights(module)
            for name, buffer in list(module.named_buffers(recurse=False)):
                assert not buffer.isnan().any(), f"{type(module).__name__}.{name} is not computed by its model"
                setattr(module, name, buffer.to(device))
    return dict(_parts(model, _dtype(model)))


def _parts(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[tuple[str, Part]]:
    groups = {name: m for name, m in model.named_modules() if isinstance(m, AdaptedLinear | TrainedLinear)}
    for name, group in groups.items():
        yield from _parts_of_group(name, group, dtype)
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[0] not in groups:
            first, last = _rows_here(parameter)
            yield name, Part(tuple(parameter.shape), first, last, partial(_put, _local(parameter), first))


def _parts_of_group(name: str, group: AdaptedLinear | TrainedLinear, dtype: torch.dtype) -> Iterator[tuple[str, Part]]:
    """The plain layers that a group was made of: their weights and biases."""
    parent = name.rpartition(".")[0]
    low, high = _rows_here(group.weight_OI)
    start = 0
    for member, size in zip(group.members, group.out_sizes, strict=True):
        path = f"{parent}.{member}".lstrip(".")
        first, last = max(low - start, 0), max(min(high - start, size), 0)
        if isinstance(group, AdaptedLinear):
            put = partial(_put_base, group, low - start, dtype)
        else:
            put = partial(_put, _local(group.weight_OI), low - start)
        yield f"{path}.weight", Part((size, group.in_features), min(first, last), last, put)
        if group.bias_O is not None:
            put = partial(_put, _local(group.bias_O), low - start)
            yield f"{path}.bias", Part((size,), min(first, last), last, put)
        start += size


def _put(local: Tensor, low: int, row: int, rows: Tensor) -> None:
    local[row - low : row - low + len(rows)].copy_(rows)


def _put_base(layer: AdaptedLinear, low: int, dtype: torch.dtype, row: int, rows_NI: Tensor) -> None:
    """Rows of a frozen weight, in the number format that the layer keeps them in."""
    here = slice(row - low, row - low + len(rows_NI))
    if layer.kind == "dense":
        _local(layer.weight_OI)[here].copy_(rows_NI)
        return
    if layer.kind == "nf4":
        quantised = quantise_nf4(rows_NI.to(dtype))
        if layer.fp8_products:
            quantised.append(nf4_row_scales(quantised))
        for parameter, value in zip(layer.stored(), quantised, strict=True):
            _local(parameter)[here].copy_(value)
        return
    q_NI, scales_N1 = quantise_rows(rows_NI.to(dtype))
    _local(layer.weight_OI)[here].copy_(q_NI)
    _local(layer.scales_O)[here].copy_(scales_N1.squeeze(1))
    if hasattr(layer, "weight_IO"):
        assert not isinstance(layer.weight_IO, DTensor), "a sharded base keeps no second copy of its rows"
        layer.weight_IO.data[:, here].copy_(q_NI.t())


def _start_adapters(model: PreTrainedModel, seed: int, device: torch.device) -> None:
    """The drawn halves as ``apply_lora`` draws them, the others zero."""

    def start(named: tuple[str, AdaptedLinear]) -> None:
        name, layer = named
        low, high = _rows_here(layer.a_GI)
        _local(layer.a_GI).copy_(initial_a(layer, name, seed)[low:high])
        _local(layer.b_OR).zero_()

    _run(start, list(adapted_layers(model)), device)


@dataclass(frozen=True, eq=False)
class _Piece:
    """Rows that are read at one time."""

    stored: StoredTensor
    first: int
    last: int
    put: Callable[[int, Tensor], None]

    @property
    def bytes(self) -> int:
        return (self.last - self.first) * self.stored.row_bytes


def _pieces(stored: StoredTensor, part: Part) -> Iterator[_Piece]:
    most = max(1, PIECE_BYTES // stored.row_bytes)
    for first in range(part.first, part.last, most):
        yield _Piece(stored, first, min(first + most, part.last), part.put)


def _reader(pieces: Iterable[_Piece], device: torch.device) -> Callable[[_Piece], None]:
    """Read a piece and put it where it belongs; from any thread, each with a buffer (on a GPU, a stream) of its own."""
    largest = max((piece.bytes for piece in pieces), default=0)
    own = threading.local()

    def read(piece: _Piece) -> None:
        if not hasattr(own, "buffer"):
            own.buffer = torch.empty(largest, dtype=torch.uint8, pin_memory=device.type == "cuda")
        rows = piece.stored.read(piece.first, piece.last, own.buffer)
        piece.put(piece.first, rows.to(device, non_blocking=True))

    def read_on_stream(piece: _Piece) -> None:
        if not hasattr(own, "stream"):
            own.stream = torch.cuda.Stream(device)
        with torch.cuda.stream(own.stream):
            read(piece)
            own.stream.synchronize()  # the buffer is used again, and what was made here may be freed

    return read_on_stream if device.type == "cuda" else read


def _run(work: Callable[[T], None], items: Sequence[T], device: torch.device) -> None:
    """``work`` on every item, by several threads; raises the first error."""

    def without_gradients(item: T) -> None:
        with torch.no_grad():  # is a thread's own
            work(item)

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    with ThreadPoolExecutor(min(MOST_READERS, usable_cpus()), "fill") as pool:
        try:
            for _ in pool.map(without_gradients, items):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()  # what the threads' streams kept is of no use to the training's


def _refuse_other_tensors(
    directory: Path, stored: dict[str, StoredTensor], parts: dict[str, Part], also: dict[str, list[str]]
) -> None:
    missing = [name for name in parts if name not in stored and not any(n in stored for n in also.get(name, ()))]
    if missing:
        raise IntegrityError(f"{directory}: without {shortened(missing)}, which the model of its config.json has")
    if unexpected := stored.keys() - parts.keys() - {name for names in also.values() for name in names}:
        raise IntegrityError(
            f"{directory}: holds {shortened(sorted(unexpected))}, which the model of its config.json has not"
        )
    for name, part in parts.items():
        for there in (n for n in (name, *also.get(name, ())) if n in stored):
            if stored[there].shape != part.shape:
                raise IntegrityError(f"{directory}: {there} is {stored[there].shape}, config.json says {part.shape}")


def _refuse_untied(directory: Path, source: str, again: str, stored: dict[str, StoredTensor], part: Part) -> None:
    """A tied parameter that is stored under both its names must be the same under both."""
    one, other = (torch.empty(PIECE_BYTES, dtype=torch.uint8) for _ in range(2))
    for piece, twin in zip(_pieces(stored[source], part), _pieces(stored[again], part), strict=True):
        if not torch.equal(
            stored[source].read(piece.first, piece.last, one), stored[again].read(twin.first, twin.last, other)
        ):
            raise IntegrityError(
                f"{directory}: {source} and {again} differ, though config.json ties them; "
                "set tie_word_embeddings to false there"
            )


def _other_names(model: nn.Module) -> dict[str, list[str]]:
    """Further names of parameters that have several, by the first."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    others: dict[str, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if first[id(parameter)] != name:
            others.setdefault(first[id(parameter)], []).append(name)
    return others


def _rows_here(parameter: Tensor) -> tuple[int, int]:
    """First and last row that this process keeps."""
    if not isinstance(parameter, DTensor):
        return 0, parameter.shape[0]
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    assert tuple(shape[1:]) == tuple(parameter.shape[1:]), "parameters are sharded by rows"
    return offset[0], offset[0] + shape[0]


def _local(parameter: Tensor) -> Tensor:
    plain = parameter.detach()
    return plain.to_local() if isinstance(plain, DTensor) else plain


def _dtype(model: PreTrainedModel) -> torch.dtype:
    """The type of parameters that are not quantised."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight.dtype
