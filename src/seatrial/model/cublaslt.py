"""Float8 products on top of what is there already: cuBLASLt adds them for nothing, and torch does not pass that on.

The library is the one that torch itself has loaded, and the kernels are those of ``torch._scaled_mm``: onto zeros, the
result is its own to the bit. NVIDIA's bindings (nvmath-python) would bring three packages and the import of every other
library for the seven functions called here.

Shapes: T rows (tokens), K summed width, N columns. Numbers of the C interface are those of cublasLt.h.
"""

import ctypes
from ctypes import byref, c_float, c_int, c_int8, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache

import torch
from torch import Tensor

_FLOAT32, _BFLOAT16, _FLOAT8_E4M3 = 0, 14, 28  # cudaDataType
_COMPUTE_FLOAT32 = 68  # cublasComputeType_t
_TRANSPOSE_A, _FAST_ACCUMULATION = 3, 25  # cublasLtMatmulDescAttributes_t
_A_SCALES, _B_SCALES, _A_SCALE_MODE, _B_SCALE_MODE = 17, 18, 31, 32
_SCALES_OF_ROWS = 3  # CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
_WORKSPACE_BYTES = 32 * 2**20
"""What cuBLAS advises for this GPU."""


@cache
def adds_onto(device: torch.device) -> bool:
    """Whether float8 products with a scale for each row add to what is there: compute capability 9.0, CUDA 12.9 on."""
    cuda = torch.version.cuda
    if device.type != "cuda" or cuda is None or torch.cuda.get_device_capability(device) != (9, 0):
        return False
    return tuple(int(part) for part in cuda.split(".")[:2]) >= (12, 9)


def add_product(out_TN: Tensor, x_TK: Tensor, x_scales_T1: Tensor, y_NK: Tensor, y_scales_N: Tensor) -> None:
    """out += (x y^T) * scales, accumulated and added in float32; ``out`` is bfloat16, its rows may lie apart.

    Raises:
        RuntimeError: cuBLASLt refuses; says which call, and with what status.
    """
    device, pointers = out_TN.device, (y_NK.data_ptr(), x_TK.data_ptr(), out_TN.data_ptr())
    product = _described(y_scales_N.data_ptr(), x_scales_T1.data_ptr())
    try:
        (tokens, summed), columns = x_TK.shape, y_NK.shape[0]
        aligned = tuple(min(256, pointer & -pointer) for pointer in pointers)
        plan = _plan(device.index, tokens, summed, columns, out_TN.stride(0), aligned)
        # Of this call alone, so that no two streams share it; the allocator hands it on in the order of the stream.
        workspace = torch.empty(plan.found.workspace_bytes, dtype=torch.uint8, device=device)
        y, x, out = pointers
        _call(
            "Matmul", _handle(device.index), product, byref(c_float(1.0)), y, plan.y, x, plan.x, byref(c_float(1.0)),
            out, plan.out, out, plan.out, byref(plan.found.algorithm), workspace.data_ptr(), workspace.numel(),
            torch.cuda.current_stream(device).cuda_stream,
        )  # fmt: skip
    finally:
        _call("MatmulDescDestroy", product)


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )
    algorithm: ctypes.Array[c_uint64]
    workspace_bytes: int


class _Plan:
    """How a product of one shape is computed. cuBLASLt is column-major: what is a row here is a column there."""

    def __init__(
        self, device: int, tokens: int, summed: int, columns: int, stride: int, aligned: tuple[int, ...]
    ) -> None:
        self.y = _layout(_FLOAT8_E4M3, summed, columns, summed)
        self.x = _layout(_FLOAT8_E4M3, summed, tokens, summed)
        self.out = _layout(_BFLOAT16, columns, tokens, stride)
        self.found = _Found()
        wishes, count = c_void_p(), c_int()
        _call("MatmulPreferenceCreate", byref(wishes))
        y, x, out = aligned
        limits = [(_WORKSPACE, c_size_t(_WORKSPACE_BYTES))]
        limits += [(k, c_uint32(v)) for k, v in zip(_ALIGNMENTS, (y, x, out, out), strict=True)]  # type: ignore[misc]
        for attribute, value in limits:
            _call("MatmulPreferenceSetAttribute", wishes, attribute, byref(value), ctypes.sizeof(value))
        # Which kernel does not hang on where scales lie, but that there are any: these are never read.
        product = _described(256, 256)
        _call(
            "MatmulAlgoGetHeuristic", _handle(device), product, self.y, self.x, self.out, self.out, wishes, 1,
            byref(self.found), byref(count),
        )  # fmt: skip
        _call("MatmulDescDestroy", product)
        _call("MatmulPreferenceDestroy", wishes)
        if count.value == 0:
            raise RuntimeError(f"cuBLASLt has no float8 product [{tokens}, {summed}] x [{summed}, {columns}] onto it")


@cache
def _plan(device: int, tokens: int, summed: int, columns: int, stride: int, aligned: tuple[int, ...]) -> _Plan:
    return _Plan(device, tokens, summed, columns, stride, aligned)


def _described(y_scales: int, x_scales: int) -> c_void_p:
    """y^T x with a scale for each row of either. One a call, since the scales are part of it."""
    product = c_void_p()
    _call("MatmulDescCreate", byref(product), _COMPUTE_FLOAT32, _FLOAT32)
    for attribute, value in (
        (_TRANSPOSE_A, c_int(1)),
        (_FAST_ACCUMULATION, c_int8(1)),
        (_A_SCALE_MODE, c_int(_SCALES_OF_ROWS)),
        (_B_SCALE_MODE, c_int(_SCALES_OF_ROWS)),
        (_A_SCALES, c_void_p(y_scales)),
        (_B_SCALES, c_void_p(x_scales)),
    ):
        _call("MatmulDescSetAttribute", product, attribute, byref(value), ctypes.sizeof(value))
    return product


def _layout(kind: int, rows: int, columns: int, stride: int) -> c_void_p:
    layout = c_void_p()
    _call("MatrixLayoutCreate", byref(layout), kind, rows, columns, stride)
    return layout


@cache
def _handle(device: int) -> c_void_p:
    handle = c_void_p()
    with torch.cuda.device(device):
        _call("Create", byref(handle))
    return handle


@cache
def _library() -> ctypes.CDLL:
    assert torch.version.cuda is not None
    library = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.partition('.')[0]}")
    address, number, size, signed = c_void_p, c_int, c_size_t, c_int64
    for name, arguments in {
        "Create": [address],
        "MatmulDescCreate": [address, number, number],
        "MatmulDescSetAttribute": [address, number, address, size],
        "MatmulDescDestroy": [address],
        "MatrixLayoutCreate": [address, number, c_uint64, c_uint64, signed],
        "MatmulPreferenceCreate": [address],
        "MatmulPreferenceSetAttribute": [address, number, address, size],
        "MatmulPreferenceDestroy": [address],
        "MatmulAlgoGetHeuristic": [*[address] * 7, number, address, address],
        "Matmul": [*[address] * 14, size, address],
    }.items():
        getattr(library, f"cublasLt{name}").argtypes = arguments
    return library


def _call(name: str, *arguments: object) -> None:
    if status := getattr(_library(), f"cublasLt{name}")(*arguments):
        raise RuntimeError(f"cublasLt{name} returned status {status}")
