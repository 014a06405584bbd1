"""How the parts of a machine are named, and which there are."""

from seatrial.accept.nvml import DriverState
from seatrial.acceptance import Part


def gpu_label(index: int, uuid: str) -> str:
    """How a GPU is named in every reason: index and the start of its UUID, which stays with the board."""
    return f"GPU {index} ({uuid[:12]})"


def gpu_parts(state: DriverState) -> tuple[Part, ...]:
    return tuple(
        Part(
            where=gpu_label(gpu.index, gpu.uuid),
            name=gpu.name,
            serial=gpu.serial or "",
            bus_id=gpu.bus_id,
            uuid=gpu.uuid,
        )
        for gpu in state.gpus
    )
