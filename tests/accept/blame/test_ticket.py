"""A ticket names the part by numbers that stay with it, and how to see the fault again."""

from seatrial.accept.blame.inquest import Culprit
from seatrial.accept.blame.ticket import ticket, ticket_text
from seatrial.accept.parts import gpu_parts
from seatrial.acceptance import Part

from ..healthy import DRIVER

NAMES = ("n0", "n1", "n2")


def test_a_gpu_goes_with_serial_number_and_address() -> None:
    culprit = Culprit(kind="bad GPU", node=1, part="gpu 3", loss=0.2, evidence=("computes 20% less",))
    one = ticket(culprit, NAMES, {1: gpu_parts(DRIVER)})
    assert (one["host"], one["serial"], one["bus_id"]) == ("n1", "165003", "00000000:03:00.0")
    assert one["reproduce"] == (
        "srun --nodelist=n1 --ntasks=1 env CUDA_VISIBLE_DEVICES=3 "
        "seatrial accept --budget 3m --checks gpu.gemm_bf16,gpu.same_bits"
    )
    text = ticket_text([one])
    assert "## bad GPU: gpu 3 of n1" in text and "- serial: 165003" in text and "- computes 20% less" in text


def test_a_path_is_played_again_by_its_two_ends() -> None:
    culprit = Culprit(kind="bad path", node=0, part="rail 1 to node 2", loss=0.3, evidence=())
    one = ticket(culprit, NAMES, {0: (Part(where="n0", name="node", serial="SN-0"),)})
    assert one["serial"] == "SN-0"
    assert "--nodelist=n0,n2 " in one["reproduce"]
