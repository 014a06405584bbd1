"""What tests of real launchers need, and what happens where it is not there."""

import os
import shutil
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skip with the reason; where launchers must be there, as in CI, fail."""
    if os.environ.get("SEATRIAL_REQUIRE_LAUNCHERS") == "1":
        pytest.fail(what)
    pytest.skip(what)


def need_namespaces() -> None:
    """Hosts of our own, each in a network of its own."""
    if os.geteuid() != 0:
        lacking("making hosts out of namespaces takes root")
    for program in ("ip", "nsenter", "unshare", "mount"):
        if shutil.which(program) is None:
            lacking(f"{program} is not there: apt-get install iproute2 util-linux")
