"""What a provider needs to replace a part: which one, by numbers that stay with it, why, and how to see it again."""

from collections.abc import Mapping, Sequence

from seatrial.accept.blame.inquest import Culprit
from seatrial.acceptance import Part
from seatrial.records import JsonObject


def ticket(culprit: Culprit, names: Sequence[str], parts: Mapping[int, Sequence[Part]]) -> JsonObject:
    """``names`` are host names by node; ``parts`` what is known of each node's parts."""
    part = _part_of(culprit, parts.get(culprit.node, ()))
    return {
        **culprit.model_dump(mode="json"),
        "host": names[culprit.node],
        "serial": part.serial if part else "",
        "bus_id": part.bus_id if part else "",
        "uuid": part.uuid if part else "",
        "reproduce": reproduce(culprit, names),
    }


def reproduce(culprit: Culprit, names: Sequence[str]) -> str:
    """The command that shows the fault again, alone."""
    host = names[culprit.node]
    if culprit.kind == "bad GPU":
        index = culprit.part.split()[1]
        check = "seatrial accept --budget 3m --checks gpu.gemm_bf16,gpu.same_bits"
        return f"srun --nodelist={host} --ntasks=1 env CUDA_VISIBLE_DEVICES={index} {check}"
    partner = next((name for name in names if name != host), host)
    if culprit.kind == "bad path":
        partner = names[int(culprit.part.split()[-1])]
    hosts = ",".join(sorted({host, partner}))
    return f"srun --nodelist={hosts} --ntasks-per-node=1 seatrial accept --budget 3m --checks cluster"


def _part_of(culprit: Culprit, parts: Sequence[Part]) -> Part | None:
    """GPUs are counted in the order of their PCI addresses, as the driver does; other parts are the node's own."""
    if culprit.kind != "bad GPU":
        return next((part for part in parts if part.name == "node"), None)
    number = culprit.part.split()[1]
    return next((part for part in parts if part.where.startswith(f"GPU {number} ")), None)


def ticket_text(tickets: Sequence[JsonObject]) -> str:
    """Markdown, a section for each."""
    lines = ["# What to replace or repair", ""]
    for one in tickets:
        lines += [
            f"## {one['kind']}: {one['part']} of {one['host']}",
            "",
            f"- lost: {one['loss']:.0%} of what its equals do",
            *(f"- {name.replace('_', ' ')}: {one[name]}" for name in ("serial", "bus_id", "uuid") if one[name]),
            *(f"- {line}" for line in one["evidence"]),
            f"- to see it again: `{one['reproduce']}`",
            "",
        ]
    return "\n".join(lines)
