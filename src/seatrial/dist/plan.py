"""How much memory a training takes on each GPU, and which plan fits: pure functions of sizes, no torch.

A plan says how the model is laid over the GPUs (``replicate``: whole on each; ``shard``: in pieces over all;
``hybrid``: in pieces over a few, usually a node, with copies across) and what the backward pass computes again.

Calibrated on an H100 80GB, Llama-3.1-8B shape, rank 64, transposed fp8 copies: 55.9 GiB measured at packs of 8,192
tokens, 74.4 GiB at 12,288 (fp8; bfloat16 takes the same, two bytes a weight either way).

Shapes: T tokens of a pack, E hidden width, M intermediate width, V vocabulary, R rank.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from seatrial.errors import ImpossibleConfiguration, UsageError

Plan = Literal["replicate", "shard", "hybrid"]
Recompute = Literal["none", "selective", "full"]
GIB = 2**30

CONTEXT_BYTES = int(1.5 * GIB)
"""CUDA context and loaded kernels, which torch's own count leaves out."""
RESERVE_BYTES = 1 * GIB
"""What the calibration leaves over: workspaces of cuBLAS and cuDNN, and small tensors."""
ATTENTION_BYTES = 2 * GIB
"""What a repeatable attention may take (seatrial.model.attention.MOST_WORKSPACE_BYTES; a test holds them equal)."""
NCCL_BYTES = 1 * GIB
"""Channels and buffers of NCCL with more than one GPU. An assumption: set generously, not measured."""
USABLE = 0.97
"""Share of a GPU's memory that the caching allocator can fill before fragments of it stay unused."""
FILLED = 0.9
"""Share of it up to which what need not be kept is: an estimate that is a little short must not cost the training."""
LOSS_CHUNK = 2048
"""Positions whose logits exist at one time (seatrial.model.loss.CHUNK; a test holds them equal)."""
_BITS = {"plain": 16.0, "fp8": 8.0, "nf4": 4.127}
"""Bits of a frozen weight. NF4: blocks of 64 with doubly quantised scales (arXiv 2305.14314, section 3)."""
_MOST_GPUS = 4096


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama-like decoder."""

    vocabulary: int
    hidden: int
    intermediate: int
    blocks: int
    query: int
    key_value: int
    tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Shape":
        """From Hugging Face's config.json.

        Raises:
            UsageError: a size that we need is not there.
        """
        needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        if missing := [name for name in needed if not isinstance(config.get(name), int)]:
            raise UsageError(f"model.path: config.json has no {', '.join(missing)}, so it is no decoder that we know")
        heads = config["num_attention_heads"]
        width = config.get("head_dim") or config["hidden_size"] // heads
        return cls(
            vocabulary=config["vocab_size"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            blocks=config["num_hidden_layers"],
            query=heads * width,
            key_value=(config.get("num_key_value_heads") or heads) * width,
            tied=bool(config.get("tie_word_embeddings")),
        )

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Output and input width of each linear layer of a block."""
        return {
            "q_proj": (self.query, self.hidden),
            "k_proj": (self.key_value, self.hidden),
            "v_proj": (self.key_value, self.hidden),
            "o_proj": (self.hidden, self.query),
            "gate_proj": (self.intermediate, self.hidden),
            "up_proj": (self.intermediate, self.hidden),
            "down_proj": (self.hidden, self.intermediate),
        }

    @property
    def end(self) -> int:
        """Parameters of the embedding, and of the head."""
        return self.vocabulary * self.hidden


@dataclass(frozen=True)
class Job:
    """What is trained. ``rank`` 0: every parameter, in float32, of which products take a copy in their own type.

    ``weight_bytes`` and ``compute_bytes``: 2 bfloat16, 4 float32. ``moment_bytes``: both of AdamW's, of one parameter.
    ``order_free``: adapters are whole on every GPU, and their gradients summed in 64 bits (dist.fixed_point).
    ``repeatable``: kernels that repeat to the bit, of which attention's may want a large workspace.
    ``fused_mlp``: the backward pass computes the product of gate and up again (model.fused_mlp).
    """

    rank: int
    pack_tokens: int
    base: str = "plain"
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    weight_bytes: int = 2
    compute_bytes: int = 2
    moment_bytes: int = 8
    packs_per_gpu: int = 1
    order_free: bool = False
    repeatable: bool = False
    fused_mlp: bool = False


@dataclass(frozen=True)
class Gpus:
    """``memory_bytes`` of each; 0: no limit is known, as on a CPU."""

    count: int
    per_node: int
    memory_bytes: int


@dataclass(frozen=True)
class Layout:
    """How the model lies. ``shard_size``: GPUs that share one copy.

    ``whole_blocks``: so many blocks, the last ones, stay gathered from the forward to the backward pass.
    ``gathered``, when every weight is trained: the weights stay whole, and quantised, for all packs of a step, and each
    rank sums its own gradients (seatrial.dist.gathered).
    """

    plan: Plan
    shard_size: int
    checkpointing: Recompute
    whole_blocks: int = 0
    gathered: bool = False


@dataclass(frozen=True)
class Estimate:
    """Bytes on each GPU at the fullest moment of a step."""

    weights: int
    adapters: int
    gradients: int
    moments: int
    activations: int
    working: int
    gathered: int
    context: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    def __str__(self) -> str:
        parts = sorted(asdict(self).items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size > 0.05 * GIB)


@dataclass(frozen=True)
class Choice:
    """What will be done, what it takes, and why it was chosen."""

    layout: Layout
    estimate: Estimate
    why: str


def estimate(shape: Shape, job: Job, layout: Layout, *, gpus: int) -> Estimate:
    """Memory of one GPU.

    A block keeps, of each token: its input, two norms' outputs, the sum after attention, attention's output, query, key
    and value as attention takes them, gate and up, their product unless it is fused; and x A^T of every adapter.
    """
    pieces = layout.shard_size if layout.plan != "replicate" else 1
    lora = job.rank > 0
    a_block = sum(o * i for o, i in shape.products.values())
    ends = shape.end * (1 if shape.tied else 2)
    adapted = {name: size for name, size in shape.products.items() if name in job.targets} if lora else {}
    stored = a_block * (job.weight_bytes if lora else 4)
    if lora and job.base != "plain":
        quantised = sum(o * i for o, i in adapted.values())
        stored = int((a_block - quantised) * job.weight_bytes + quantised * _BITS[job.base] / 8)
        if job.base == "fp8" and layout.plan == "replicate":
            stored += quantised  # the second copy, laid out for the backward product
    weights = stored * shape.blocks + ends * (job.weight_bytes if lora else 4)
    fp8_head = shape.end if lora and job.base == "fp8" else 0  # for the derivative of the loss
    in_block = sum((o + i) * job.rank for o, i in adapted.values())
    adapters = in_block * shape.blocks * 4
    gradients = adapters if lora else weights
    moments = gradients // 4 * job.moment_bytes
    trained_pieces = 1 if job.order_free else pieces

    tokens, compute = job.pack_tokens, job.compute_bytes
    mlp = (2 if job.fused_mlp else 3) * shape.intermediate
    attention = 4 * shape.hidden + 2 * shape.query + 2 * shape.key_value
    skinny = len(adapted) * job.rank
    kept = {"none": attention + mlp + skinny, "selective": attention + skinny, "full": shape.hidden}
    again = {"none": 0, "selective": mlp, "full": attention + mlp + skinny}
    activations = tokens * compute * (kept[layout.checkpointing] * shape.blocks + 4 * shape.hidden)
    backward = tokens * compute * (again[layout.checkpointing] + 4 * shape.intermediate)
    loss = min(tokens, LOSS_CHUNK) * shape.vocabulary * compute * 2

    gathered = fp8_head
    if pieces > 1:
        # The block at work, the next one, and a buffer that either arrives in; the head; gradients of two blocks.
        a_block_adapters = 0 if job.order_free else in_block
        a_whole_block = stored + a_block_adapters * 4 if lora else a_block * compute
        whole = shape.blocks if layout.gathered else layout.whole_blocks
        blocks_whole = min(3 + whole, shape.blocks + 1) * a_whole_block
        sums = 2 * (a_block_adapters if lora else a_block) * 4
        gathered += blocks_whole + shape.end * (job.weight_bytes if lora else compute) + sums
        if layout.gathered:
            gathered += (a_block * shape.blocks + ends) * 4  # each rank's own sums of gradients in float32
    elif not lora and compute < 4:
        gathered += weights // 4 * compute  # autocast keeps its copies from the forward to the backward pass
    if layout.gathered and job.base == "fp8":
        gathered += 2 * a_block * shape.blocks  # both layouts
    if lora and (job.base == "nf4" or (job.base == "fp8" and layout.plan != "replicate")):
        # One weight at a time, as a product wants it: unpacked, or transposed.
        gathered += 2 * shape.intermediate * shape.hidden * (compute if job.base == "nf4" else 1)

    # Gradients of one backward pass grow while its activations go; those of an earlier one stay beside them.
    # Sums in 64 bits are made float32 again at the end of a step; they count for one pack too, so that what is computed
    # again, which may change bits, does not hang on the number of GPUs.
    held = gradients * 2 if job.order_free else gradients // pieces
    beside = held if job.packs_per_gpu > 1 or job.order_free else 0
    fullest = activations + max(loss, backward)
    beside = max(beside, held + (gradients if job.order_free else 0) - fullest)
    return Estimate(
        weights=weights // pieces,
        adapters=adapters // trained_pieces,
        gradients=beside,
        moments=moments // trained_pieces,
        activations=activations,
        working=max(loss, backward, ATTENTION_BYTES if job.repeatable else 0) + RESERVE_BYTES,
        gathered=gathered,
        context=CONTEXT_BYTES + (NCCL_BYTES if gpus > 1 else 0),
    )


def choose(
    shape: Shape,
    job: Job,
    gpus: Gpus,
    *,
    plan: str = "auto",
    checkpointing: str = "auto",
    shard_size: int | None = None,
) -> Choice:
    """The first layout that fits, fastest first; what is not 'auto' is kept to.

    When both are given, they are done as asked, even where the estimate says that they do not fit.

    Whole copies come before pieces, since they only exchange adapters; pieces within a node before pieces over all;
    and each first without computing anything again. Full training begins with pieces, whose optimizer is shared, and
    with weights that are gathered once a step rather than for every pack.

    Raises:
        UsageError: ``shard_size`` does not go with the GPUs or the plan.
        ImpossibleConfiguration: none fits; says what is missing, and the nearest configurations that would.
    """
    layouts = list(_layouts(job, gpus, plan, checkpointing, shard_size))
    limit = int(gpus.memory_bytes * USABLE)
    sizes = [estimate(shape, job, layout, gpus=gpus.count) for layout in layouts]
    if gpus.memory_bytes == 0:
        return Choice(layouts[0], sizes[0], "no GPU, whose memory could be too small")
    for layout, size in zip(layouts, sizes, strict=True):
        if size.total <= limit:
            filled = _filled(shape, job, gpus, layout)
            size = estimate(shape, job, filled, gpus=gpus.count)
            why = f"{size.total / GIB:.1f} of {gpus.memory_bytes / GIB:.1f} GiB a GPU ({size})"
            if layout is not layouts[0]:
                first = layouts[0]
                why += f"; {_said(first)} would take {sizes[0].total / GIB:.1f} GiB"
            return Choice(filled, size, why)
    if plan != "auto" and checkpointing != "auto":
        return Choice(
            layouts[-1], sizes[-1], f"asked for, though it should not fit: {sizes[-1].total / GIB:.1f} GiB a GPU"
        )
    least, layout = min(zip(sizes, layouts, strict=True), key=lambda pair: pair[0].total)
    near = list(_nearest(shape, job, gpus, plan, checkpointing))
    raise ImpossibleConfiguration(
        f"this training does not fit {gpus.count} x {gpus.memory_bytes / GIB:.0f} GiB: at the least ({_said(layout)}) "
        f"it takes {least.total / GIB:.1f} GiB a GPU ({least}); "
        + (f"would fit: {', or '.join(near)}" if near else "nor would more GPUs, another base or shorter packs help")
    )


def _filled(shape: Shape, job: Job, gpus: Gpus, layout: Layout) -> Layout:
    """The same with as many blocks kept whole as there is room for: what is kept is not gathered again."""
    if layout.plan == "replicate" or layout.gathered:
        return layout
    room = int(gpus.memory_bytes * FILLED)
    fuller = (replace(layout, whole_blocks=blocks) for blocks in range(shape.blocks, 0, -1))
    return next((each for each in fuller if estimate(shape, job, each, gpus=gpus.count).total <= room), layout)


def _said(layout: Layout) -> str:
    over = f" over {layout.shard_size}" if layout.plan != "replicate" else ""
    once = ", weights gathered once a step" if layout.gathered else ""
    return f"{layout.plan}{over}, activation checkpointing {layout.checkpointing}{once}"


def _layouts(job: Job, gpus: Gpus, plan: str, checkpointing: str, shard_size: int | None) -> Iterator[Layout]:
    """Every layout that the settings and the GPUs allow, in the order of preference."""
    recompute: list[Recompute] = ["none", "selective", "full"]
    recompute = [kind for kind in recompute if checkpointing in ("auto", kind)]
    within = shard_size or min(gpus.per_node, gpus.count)
    if gpus.count % within:
        raise UsageError(f"parallel.shard_size: {within} GPUs cannot share a copy, {gpus.count} is no multiple of it")
    if shard_size is not None and plan in ("replicate", "shard"):
        raise UsageError(f"parallel.shard_size goes with parallel.plan hybrid or auto, not with {plan}")
    full = job.rank == 0
    if plan in ("auto", "replicate") and (not full or gpus.count == 1 or plan == "replicate"):
        if full:
            yield Layout("replicate", 1, recompute[0], gathered=True)
        for kind in recompute:
            yield Layout("replicate", 1, kind)
    if plan == "hybrid" or (plan == "auto" and 1 < within < gpus.count):
        yield from _sharded("hybrid", within, recompute, full)
    if plan == "shard" or (plan == "auto" and gpus.count > 1):
        yield from _sharded("shard", gpus.count, recompute, full)


def _sharded(plan: Plan, size: int, recompute: list[Recompute], full: bool) -> Iterator[Layout]:
    if full:
        yield Layout(plan, size, recompute[0], gathered=True)
    for kind in recompute:
        yield Layout(plan, size, kind)


def _nearest(shape: Shape, job: Job, gpus: Gpus, plan: str, checkpointing: str) -> Iterator[str]:
    """One change each that makes the training fit, smallest first."""
    limit = int(gpus.memory_bytes * USABLE)

    def fits(job: Job, gpus: Gpus, plan: str = plan, checkpointing: str = checkpointing) -> bool:
        layouts = _layouts(job, gpus, plan, checkpointing, None)
        return any(estimate(shape, job, layout, gpus=gpus.count).total <= limit for layout in layouts)

    if (plan, checkpointing) != ("auto", "auto") and fits(job, gpus, "auto", "auto"):
        yield "parallel.plan and model.activation_checkpointing auto"
    if job.rank:
        for base in ("fp8", "nf4"):
            # Pieces hold fp8 once, whole copies twice: no smaller than bfloat16.
            if base != job.base and fits(replace(job, base=base), gpus):
                yield f"model.base {base}"
                break
    tokens = job.pack_tokens
    while (tokens := tokens // 2) >= 512:
        if fits(replace(job, pack_tokens=tokens), gpus):
            yield f"data.length {tokens}"
            break
    count = gpus.count
    while (count := 2 * count) <= _MOST_GPUS:
        if fits(job, replace(gpus, count=count, per_node=max(gpus.per_node, min(count, 8))), "auto", checkpointing):
            yield f"{count} GPUs of this size"
            break
    if job.rank == 0 and fits(replace(job, rank=16), gpus):
        yield "LoRA (a section lora) instead of training every parameter"
