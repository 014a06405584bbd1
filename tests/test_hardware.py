"""What a machine is called."""

import platform

import pytest

from seatrial.hardware import node_name


def test_a_container_is_told_the_name_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEATRIAL_NODE_NAME", raising=False)
    assert node_name() == platform.node()
    monkeypatch.setenv("SEATRIAL_NODE_NAME", "worker-7")
    assert node_name() == "worker-7"
