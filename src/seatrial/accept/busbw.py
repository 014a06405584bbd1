"""What a collective should do: a range of bus bandwidth, from what the GPUs, links and ranks are.

The model is alpha-beta (R. Hockney, Parallel Computing 20, 1994). A ring of n ranks takes n - 1 steps, or twice as many
for an all-reduce; each costs a latency alpha and its part of the message at bandwidth B. In the definition of
nccl-tests (doc/PERFORMANCE.md) every collective by ring then has the same curve over the message size S:

    busbw(S) = B / (1 + n alpha B / S)

B is a share of what the links carry. Of few ranks it is a smaller one, since each also moves its own part through its
memory. The shares, and alpha, are fitted to published and own measurements: ``tests/accept/test_busbw.py`` holds the
model against them. The upper end of the range is physics: no link carries more than its rate, and no kernel ends within
a microsecond.
"""

from dataclasses import dataclass
from typing import Literal

from seatrial.accept.gpu_kinds import A100, B200, H100, H200, GpuKind
from seatrial.accept.gpu_limits import NETWORK, pcie_gb_per_s
from seatrial.accept.limits import FAIL_SHARE, WARN_SHARE, Limit
from seatrial.hardware import GB

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
COLLECTIVES: tuple[Collective, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send_recv",
)

MIB, GIB = 2**20, 2**30
LARGE_MESSAGE_BYTES = 4 * GIB
"""From this size on the curve is flat to within 2 %; limits without a size in their name are those of this size."""

ALPHA_SECONDS = 6.6e-6
ALPHA_SOURCE = (
    f"fitted to {NETWORK}: 8 x H200 by NVLS, 346 GB/s at 64 MiB to 473 at 4 GiB, within 2 %; 32 x B200, 362 at 1 GiB"
)
B200_NVLS_ALPHA_SECONDS = 22e-6
"""8 x B200 by NVLS ramp slower: 838 GB/s at 8 GiB, 845.7 at 16 GiB (same source)."""
LATENCY_SLACK = 1.86
"""A healthy alpha may be so much longer. Half the reference, where the lint stops, is then reached by 0 bytes."""
LEAST_KERNEL_SECONDS = 1e-6
JUDGED_FROM = 0.75
"""Messages for which n alpha B / S is larger are all latency: they are recorded, since a busy host delays them too."""

RING_SHARE = {A100: 0.783, B200: 0.758}
RING_SHARE_OTHERS = 0.813
RING_SOURCE = f"{NETWORK}, NCCL_NVLS_ENABLE=0 on 8 GPUs: H200 366 of 450 GB/s, A100 234.9 of 300, B200 682 of 900"
NVLS_SHARE = {B200: 0.609}
NVLS_SHARE_OTHERS = 0.680
NVLS_SOURCE = f"{NETWORK}: 414, 436, 460, 473 GB/s on 5 to 8 H200, 68 % of the bound each; B200 846 of 1,400"
OF_RING: dict[Collective, float] = {
    "all_reduce": 1.0,
    "all_gather": 0.970,
    "reduce_scatter": 0.973,
    "all_to_all": 0.937,
    "broadcast": 0.90,
    "send_recv": 0.90,
}
OF_RING_SOURCE = "own measurement on 8 x H200 at 4 GiB: 366, 355, 356, 343 GB/s; broadcast and send_recv: computed"
OWN_PART: dict[Collective, float] = {"all_reduce": 0.116, "all_gather": 0.276, "reduce_scatter": 0.256}
"""Seconds in which a rank of a ring moves its own part through its memory, over those of sending a part to the next."""
OWN_PART_SOURCE = (
    "own part fitted to own measurements on 8 x H200 (above) and 2 x H200, 4 GiB: 342, 291, 290 GB/s, by nccl-tests "
    f"348, 303, 302; 4 x H200 at 8 GiB: 363 ({NETWORK}); 2 x B200 all-gather at 8 GiB: 483 (DraNet, nvidia-dranet.md)"
)
MEASURED_RANKS = 8
"""Of one node: with fewer, messages under 4 GiB were measured on two GPUs alone, and took up to a fifth longer."""
NIC_SHARE = 0.90
NIC_SOURCE = (
    "of the line rate, NVIDIA/nccl-tests issues 267 and 290: 46 to 48 of 50 GB/s per NDR port; whole rings reach 321 "
    "to 382 GB/s over 8 of them (nccl issue 1221, Voltage Park, ml-engineering)"
)
PCIE_SHARE = 0.40
PCIE_SOURCE = "computed: rings without NVLink cross the host's memory, so every byte passes a PCIe link twice or more"
UNPROVEN_SHARE = 0.70
"""Of the reference, where the share is computed and nobody published a measurement."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """``ranks`` GPUs, one rank on each, over ``nodes`` equal nodes. ``nic_gb_per_s``: line rate of a GPU's share of the
    node's network ports, one direction. ``linked``: NVLink joins the GPUs of a node."""

    kind: GpuKind
    ranks: int
    nodes: int = 1
    nic_gb_per_s: float = 0.0
    linked: bool = True

    @property
    def name(self) -> str:
        spread = f", {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.ranks} x {self.kind.name}{spread}"


@dataclass(frozen=True)
class Plateau:
    """Large messages: what is expected, what no wire exceeds, and why. ``hops`` count latencies as n does in a ring.
    ``ramp_share``: what ``fail_share`` is for large messages, of those that are smaller."""

    busbw: float
    bound: float
    fail_share: float
    ramp_share: float
    hops: float
    arithmetic: str
    source: str


def busbw_factor(collective: Collective, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, which is size / time (nccl-tests doc/PERFORMANCE.md).

    The size is a rank's whole buffer; for all_gather its output, for reduce_scatter its input.
    """
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "broadcast": 1.0, "send_recv": 1.0}.get(collective, share)


def busbw_gb_per_s(collective: Collective, size_bytes: int, seconds: float, ranks: int) -> float:
    return size_bytes / seconds * busbw_factor(collective, ranks) / GB


def expected_busbw(layout: Layout, collective: Collective, algorithm: str, size_bytes: int) -> Limit | None:
    """The range for one message size; None where no model fits, so that nothing is judged by a guess.

    ``algorithm`` is NCCL's own word: RING, TREE, NVLS, NVLSTREE; P2P for collectives that are sends and receives.
    """
    plateau = _plateau(layout, collective, algorithm)
    if plateau is None:
        return None
    alpha = B200_NVLS_ALPHA_SECONDS if layout.kind is B200 and algorithm == "NVLS" else ALPHA_SECONDS
    ramp_bytes = plateau.hops * alpha * plateau.busbw * GB
    reference = plateau.busbw / (1 + ramp_bytes / size_bytes)
    quickest = size_bytes * busbw_factor(collective, layout.ranks) / LEAST_KERNEL_SECONDS / GB
    judged = ramp_bytes / size_bytes <= JUDGED_FROM
    fail_share = plateau.fail_share if size_bytes >= LARGE_MESSAGE_BYTES else plateau.ramp_share
    fail = plateau.busbw * fail_share / (1 + LATENCY_SLACK * ramp_bytes / size_bytes)
    warn = reference * WARN_SHARE if plateau.fail_share == FAIL_SHARE and size_bytes >= LARGE_MESSAGE_BYTES else None
    size = "" if size_bytes == LARGE_MESSAGE_BYTES else f" of {shown_bytes(size_bytes)}"
    return Limit(
        name=f"{collective.replace('_', '-')} busbw by {algorithm}, {layout.name}{size}",
        unit="GB/s",
        reference=reference,
        warn=warn if judged else None,
        fail=fail if judged else None,
        bound=min(plateau.bound, quickest),
        arithmetic=(
            f"{plateau.arithmetic}; at {shown_bytes(size_bytes)}: {plateau.busbw:.1f} / (1 + {plateau.hops:g} x "
            f"{alpha * 1e6:g} us x {plateau.busbw:.1f} GB/s / S) = {reference:.1f}"
            + (
                f"; floor {fail_share:.0%} of it with {LATENCY_SLACK:g} x the latency = {fail:.1f}"
                if judged
                else "; all latency, so recorded, not judged"
            )
        ),
        source=f"{plateau.source}; latency {ALPHA_SOURCE}",
    )


def _plateau(layout: Layout, collective: Collective, algorithm: str) -> Plateau | None:
    if layout.ranks < 2 or layout.ranks % layout.nodes or (layout.nodes > 1 and layout.nic_gb_per_s <= 0):
        return None
    if not layout.linked or layout.kind.nvlinks == 0:
        return _over_pcie(layout, collective, algorithm)
    if layout.nodes == 1:
        return _inside(layout, collective, algorithm)
    if algorithm == "RING":
        return _rings_across(layout, collective)
    if collective == "all_to_all" and algorithm == "P2P":
        return _all_to_all_across(layout)
    if collective == "all_reduce" and algorithm in ("TREE", "NVLSTREE", "NVLS"):
        return _trees_across(layout, algorithm)
    return None


def _inside(layout: Layout, collective: Collective, algorithm: str) -> Plateau | None:
    """One node, all GPUs on NVLink switches."""
    link, n, kind = layout.kind.nvlink_total_gb_per_s, layout.ranks, layout.kind
    ramp_share = FAIL_SHARE if n >= MEASURED_RANKS else UNPROVEN_SHARE
    hops = max(n, MEASURED_RANKS)  # two ranks need as large messages as eight do
    wire = f"{kind.nvlinks} NVLinks x {kind.nvlink_gb_per_s:g} GB/s = {link:g}"
    # A switch that gathers and reduces for the GPUs lets NCCL do other collectives by NVLS no faster than a ring.
    if algorithm == "NVLS" and collective == "all_reduce":
        # A GPU sends its whole buffer to the switch once and its reduced share back: S (1 + 1/n) bytes over its links.
        bound = link / (1 + 1 / n) * 2 * (n - 1) / n
        share = NVLS_SHARE.get(kind, NVLS_SHARE_OTHERS)
        how = f"{wire}; the switch reduces, so bound = {link:g} / (1 + 1/{n}) x 2 ({n} - 1) / {n} = {bound:.0f}"
        how += f"; {share:.1%} of it"
        return Plateau(share * bound, bound, FAIL_SHARE, ramp_share, hops, how, NVLS_SOURCE)
    proven = algorithm == "RING" or (algorithm == "P2P" and collective in ("all_to_all", "send_recv"))
    if not proven and algorithm != "NVLS":
        return None
    own = _own_part(collective, n) if algorithm == "RING" else 1.0
    share = RING_SHARE.get(kind, RING_SHARE_OTHERS) * OF_RING[collective] * own
    # Each rank of a ring sends busbw; so does each in an all-to-all, whose own block stays where it is.
    how = f"{wire} = bound; {share:.1%} of it = {share * link:.0f}"
    source = f"{RING_SOURCE}; {OF_RING_SOURCE}"
    if own != 1:
        how += f" (a ring of {n}: {own:.3f} of one of {MEASURED_RANKS})"
        source += f"; {OWN_PART_SOURCE}"
    measured = collective in (*OWN_PART, "all_to_all") and (n == MEASURED_RANKS or kind in (H100, H200))
    fail_share = FAIL_SHARE if measured and algorithm != "NVLS" else UNPROVEN_SHARE
    return Plateau(share * link, link, fail_share, min(ramp_share, fail_share), hops, how, source)


def _own_part(collective: Collective, ranks: int) -> float:
    """Bus bandwidth of a large message by a ring of so many ranks over that by a ring of MEASURED_RANKS.

    A rank sends n - 1 parts, or twice as many for an all-reduce, and moves its own through its memory meanwhile.
    """
    sent = 2 if collective == "all_reduce" else 1
    own = OWN_PART.get(collective, 0.0)
    return (1 + own / (sent * (MEASURED_RANKS - 1))) / (1 + own / (sent * (ranks - 1)))


def _rings_across(layout: Layout, collective: Collective) -> Plateau:
    """Rings enter and leave each node through all of its ports."""
    local = layout.ranks // layout.nodes
    link, ports = layout.kind.nvlink_total_gb_per_s, local * layout.nic_gb_per_s
    ring = RING_SHARE.get(layout.kind, RING_SHARE_OTHERS) * link
    expected = min(ring, NIC_SHARE * ports) * OF_RING[collective]
    how = (
        f"the narrower of NVLink rings, {ring:.0f}, and ports, {NIC_SHARE:g} x {local} x {layout.nic_gb_per_s:g} = "
        f"{NIC_SHARE * ports:.0f}; x {OF_RING[collective]:g} for {collective}"
    )
    fail_share = FAIL_SHARE if collective == "all_reduce" else UNPROVEN_SHARE
    return Plateau(
        expected, min(link, ports), fail_share, fail_share, layout.ranks, how, f"{RING_SOURCE}; {NIC_SOURCE}"
    )


def _trees_across(layout: Layout, algorithm: str) -> Plateau:
    """Reduced inside nodes first: of each GPU's share S / g, 2 (k - 1) / k times as much passes its port."""
    n, k = layout.ranks, layout.nodes
    wire = layout.nic_gb_per_s * (n - 1) / (k - 1)
    link = layout.kind.nvlink_total_gb_per_s
    local = n // k
    by_switch = link / (1 + 1 / local) * 2 * (local - 1) / local if local > 1 else link
    share = NVLS_SHARE.get(layout.kind, NVLS_SHARE_OTHERS)
    inside = share * by_switch if algorithm != "TREE" else RING_SHARE.get(layout.kind, RING_SHARE_OTHERS) * link
    expected = 0.9 * min(inside, NIC_SHARE * wire)
    bound = min(2 * link, wire)
    how = (
        f"inside a node {inside:.0f}; ports {layout.nic_gb_per_s:g} x ({n} - 1) / ({k} - 1) = {wire:.0f}, of which "
        f"{NIC_SHARE:.0%}; 90 % of the narrower, since both take turns"
    )
    source = f"{NVLS_SOURCE}; {NIC_SOURCE}; ml-engineering on hierarchical bandwidth; 2 x 8 H100: 430 (nccl issue 1221)"
    hops = local + 2 * max(1, (k - 1).bit_length())
    return Plateau(expected, bound, UNPROVEN_SHARE, UNPROVEN_SHARE, hops, how, source)


def _all_to_all_across(layout: Layout) -> Plateau:
    """Of a rank's buffer, (k - 1) / k leaves the node, through one port alone."""
    n, k, nic = layout.ranks, layout.nodes, layout.nic_gb_per_s
    wire = nic * k / (k - 1) * (n - 1) / n
    bound = min(wire, layout.kind.nvlink_total_gb_per_s)
    expected = NIC_SHARE * bound
    how = f"ports {nic:g} x {k} / ({k} - 1) x ({n} - 1) / {n} = {wire:.0f} = bound; {NIC_SHARE:.0%} of it"
    source = f"NVIDIA/nccl-tests issues 130 and 267; {NIC_SOURCE}"
    return Plateau(expected, bound, UNPROVEN_SHARE, UNPROVEN_SHARE, n, how, source)


def _over_pcie(layout: Layout, collective: Collective, algorithm: str) -> Plateau | None:
    """No NVLink: rings over PCIe, or the host's memory."""
    if layout.nodes > 1 or algorithm not in ("RING", "TREE", "P2P"):
        return None
    bound = pcie_gb_per_s(layout.kind.pcie_generation, 16)
    expected = PCIE_SHARE * bound * OF_RING[collective]
    how = f"PCIe Gen{layout.kind.pcie_generation} x16 = {bound:.1f} GB/s = bound; {PCIE_SHARE:.0%} of it"
    return Plateau(expected, bound, UNPROVEN_SHARE, UNPROVEN_SHARE, layout.ranks, how, PCIE_SOURCE)


def shown_bytes(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def explained(layout: Layout) -> str:
    """The range of every collective and algorithm that the model knows, by message size, and how it comes about."""
    lines = []
    for collective in COLLECTIVES:
        for algorithm in ("RING", "TREE", "NVLS", "NVLSTREE", "P2P"):
            if (algorithm == "P2P") != (collective in ("all_to_all", "send_recv")):
                continue
            sizes = (8, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB, LARGE_MESSAGE_BYTES, 16 * GIB)
            known = [(size, limit) for size in sizes if (limit := expected_busbw(layout, collective, algorithm, size))]
            if not known:
                continue
            lines.append(f"{collective} by {algorithm}, {layout.name}; GB/s of bus bandwidth")
            for size, limit in known:
                floor = "not judged" if limit.fail is None else f"fails below {limit.fail:.4g}"
                lines.append(
                    f"  {shown_bytes(size):>8}: expected {limit.reference:.4g}, {floor}, at most {limit.bound:.4g}"
                )
            _, large = next(found for found in known if found[0] == LARGE_MESSAGE_BYTES)
            lines += [f"  because {large.arithmetic}", f"  source  {large.source}"]
    return "\n".join(lines)


def built_in_limits(kinds: tuple[GpuKind, ...]) -> tuple[Limit, ...]:
    """The limits at 4 GiB of whole nodes of 8, which own limits replace by name and the lint goes through."""
    found = []
    for kind in kinds:
        layout = Layout(kind=kind, ranks=8, linked=not kind.bridged)
        for collective in COLLECTIVES:
            for algorithm in ("RING", "NVLS", "P2P"):
                if (algorithm == "P2P") != (collective in ("all_to_all", "send_recv")):
                    continue
                if algorithm == "NVLS" and (kind is A100 or collective != "all_reduce"):
                    continue
                limit = expected_busbw(layout, collective, algorithm, LARGE_MESSAGE_BYTES)
                found += [limit] if limit else []
    return tuple(found)
