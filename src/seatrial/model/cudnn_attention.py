"""Causal attention inside documents through cuDNN's fused kernels (extra `gpu`: nvidia-cudnn-frontend).

torch reaches cuDNN for rows of one length only: its ragged path builds the execution plan again at every call. Here
a plan is built once for each bucket of (documents, longest document) and kept.

Shapes: T tokens, H query heads, K key/value heads, D head width, N documents. Legend of cuDNN's own tensors: batch N,
heads, longest document, width; ``ragged`` offsets say where each document starts in the packed tensor.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from seatrial.errors import ImpossibleConfiguration


@dataclass(frozen=True)
class _Shape:
    tokens: int
    heads: int
    key_heads: int
    width: int
    documents: int
    longest: int
    scale: float
    deterministic: bool
    device: int


@dataclass(frozen=True)
class _Plan:
    graph: Any
    tensors: tuple[Any, ...]
    workspace_bytes: int


def forward(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, cu_seqlens: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention [T, H, D] and what :func:`backward` asks for. ``longest`` may be an upper bound."""
    shape = _shape(query_THD, key_TKD, cu_seqlens, longest, scale)
    out, stats = torch.empty_like(query_THD), query_THD.new_empty(query_THD.shape[:2], dtype=torch.float32)
    inputs = (query_THD, key_TKD, value_TKD)
    _execute(_forward_plan(shape), (*inputs, *_layout(shape, cu_seqlens), out, stats), query_THD.device)
    return out, stats


def backward(
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    out_THD: Tensor,
    stats: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value."""
    shape = _shape(query_THD, key_TKD, cu_seqlens, longest, scale)
    grads = torch.empty_like(query_THD), torch.empty_like(key_TKD), torch.empty_like(value_TKD)
    inputs = (query_THD, key_TKD, value_TKD, out_THD, grad_THD, stats)
    _execute(_backward_plan(shape), (*inputs, *_layout(shape, cu_seqlens), *grads), query_THD.device)
    return grads


@cache
def is_available(device_index: int) -> bool:
    """Whether the frontend is installed and the GPU is one its training kernels were measured on here (Hopper)."""
    try:
        import cudnn  # noqa: F401
    except ImportError:
        return False
    return torch.cuda.get_device_capability(device_index) == (9, 0)


def _shape(query: Tensor, key: Tensor, cu_seqlens: Tensor, longest: int, scale: float) -> _Shape:
    return _Shape(
        tokens=query.shape[0],
        heads=query.shape[1],
        key_heads=key.shape[1],
        width=query.shape[2],
        documents=cu_seqlens.shape[0] - 1,
        longest=longest,
        scale=scale,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        device=query.device.index,
    )


def _layout(shape: _Shape, cu_seqlens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lengths of the documents, and where each starts in query, key and statistics, counted in elements."""
    lengths = cu_seqlens.diff()
    return (
        lengths,
        cu_seqlens * (shape.heads * shape.width),
        cu_seqlens * (shape.key_heads * shape.width),
        cu_seqlens * shape.heads,
    )


def _execute(plan: _Plan, buffers: tuple[Tensor, ...], device: torch.device) -> None:
    handle = _handle(device.index)
    import cudnn

    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream(device).cuda_stream)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=device)
    plan.graph.execute(dict(zip(plan.tensors, buffers, strict=True)), workspace, handle=handle)


@cache
def _handle(device_index: int) -> Any:
    import cudnn

    with torch.cuda.device(device_index):
        return cudnn.create_handle()


@cache
def _forward_plan(shape: _Shape) -> _Plan:
    graph, inputs, layout = _start(shape)
    query, key, value = inputs
    lengths, at_query, _, at_stats = layout
    out, stats = graph.sdpa(
        query,
        key,
        value,
        generate_stats=True,
        attn_scale=shape.scale,
        use_padding_mask=True,
        seq_len_q=lengths,
        seq_len_kv=lengths,
        diagonal_band_right_bound=0,
    )
    _output(out, shape, shape.heads, shape.width, at_query)
    _output(stats, shape, shape.heads, 1, at_stats, float32=True)
    return _built(graph, (*inputs, *layout, out, stats))


@cache
def _backward_plan(shape: _Shape) -> _Plan:
    import cudnn

    graph, inputs, layout = _start(shape)
    query, key, value = inputs
    lengths, at_query, at_key, at_stats = layout
    out = _tensor(graph, shape, shape.heads, shape.width, at_query)
    grad = _tensor(graph, shape, shape.heads, shape.width, at_query)
    stats = _tensor(graph, shape, shape.heads, 1, at_stats, data_type=cudnn.data_type.FLOAT)
    grads = graph.sdpa_backward(
        q=query,
        k=key,
        v=value,
        o=out,
        dO=grad,
        stats=stats,
        attn_scale=shape.scale,
        use_padding_mask=True,
        seq_len_q=lengths,
        seq_len_kv=lengths,
        max_total_seq_len_q=shape.tokens,
        max_total_seq_len_kv=shape.tokens,
        diagonal_band_right_bound=0,
        use_deterministic_algorithm=shape.deterministic,
    )
    for tensor, heads, at in zip(
        grads, (shape.heads, shape.key_heads, shape.key_heads), (at_query, at_key, at_key), strict=True
    ):
        _output(tensor, shape, heads, shape.width, at)
    return _built(graph, (*inputs, out, grad, stats, *layout, *grads))


def _start(shape: _Shape) -> tuple[Any, tuple[Any, Any, Any], tuple[Any, Any, Any, Any]]:
    """A graph with its query, key and value, and the tensors that describe the documents."""
    import cudnn

    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.BFLOAT16,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=_handle(shape.device),
    )

    def integers(count: int) -> Any:
        return graph.tensor(dim=(count, 1, 1, 1), stride=(1, 1, 1, 1), data_type=cudnn.data_type.INT32)

    lengths = integers(shape.documents)
    at_query, at_key, at_stats = (integers(shape.documents + 1) for _ in range(3))
    query = _tensor(graph, shape, shape.heads, shape.width, at_query)
    key = _tensor(graph, shape, shape.key_heads, shape.width, at_key)
    value = _tensor(graph, shape, shape.key_heads, shape.width, at_key)
    return graph, (query, key, value), (lengths, at_query, at_key, at_stats)


def _dims(shape: _Shape, heads: int, width: int) -> dict[str, tuple[int, ...]]:
    return {
        "dim": (shape.documents, heads, shape.longest, width),
        "stride": (shape.longest * heads * width, width, heads * width, 1),
    }


def _tensor(graph: Any, shape: _Shape, heads: int, width: int, ragged: Any, **options: Any) -> Any:
    import cudnn

    options.setdefault("data_type", cudnn.data_type.BFLOAT16)
    tensor = graph.tensor(**_dims(shape, heads, width), **options)
    tensor.set_ragged_offset(ragged)
    return tensor


def _output(tensor: Any, shape: _Shape, heads: int, width: int, ragged: Any, *, float32: bool = False) -> None:
    import cudnn

    dims = _dims(shape, heads, width)
    tensor.set_output(True).set_dim(dims["dim"]).set_stride(dims["stride"])
    tensor.set_ragged_offset(ragged)
    tensor.set_data_type(cudnn.data_type.FLOAT if float32 else cudnn.data_type.BFLOAT16)


def _built(graph: Any, tensors: tuple[Any, ...]) -> _Plan:
    import cudnn

    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
    except cudnn.cudnnGraphNotSupportedError as error:
        raise ImpossibleConfiguration(
            f"cuDNN {cudnn.backend_version()} has no plan for this attention: {error}"
        ) from error
    return _Plan(graph, tensors, graph.get_workspace_size())
