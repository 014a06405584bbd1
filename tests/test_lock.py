"""Two processes on one machine; and of other machines, what can be known about their holders."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from seatrial.errors import UsageError
from seatrial.lock import Holder, locked, must_be_dead

HERE, THERE = Holder(7, "node-a", "boot-1"), Holder(8, "node-b", "boot-9")

HOLD = """
import sys, time
from pathlib import Path
from seatrial.lock import locked
with locked(Path(sys.argv[1]), lambda: ""):
    print("held", flush=True)
    time.sleep(60)
"""


def never() -> str:
    return ""


def write_holder(directory: Path, holder: Holder) -> None:
    directory.mkdir(exist_ok=True)
    (directory / ".lock").write_text(json.dumps({"pid": holder.pid, "host": holder.host, "boot": holder.boot}))


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(UsageError, match=f"in use by process {holder.pid} on "), locked(tmp_path, never):
            pass
        holder.kill()
        holder.wait()
        began = time.monotonic()
        with locked(tmp_path, never) as before:
            assert before is not None
            assert before.pid == holder.pid
        assert time.monotonic() - began < 1, "the kernel of this machine knows"


def test_an_orderly_end_leaves_no_holder(tmp_path: Path) -> None:
    with locked(tmp_path, never) as before:
        assert before is None
    with locked(tmp_path, never) as before:
        assert before is None


def test_a_holder_elsewhere_that_gives_signs_of_life_is_believed(tmp_path: Path) -> None:
    write_holder(tmp_path, THERE)
    taken = locked(tmp_path, time.monotonic, sign_seconds=0.4)
    with pytest.raises(UsageError, match="in use by process 8 on node-b"), taken:
        pass
    assert "node-b" in (tmp_path / ".lock").read_text(), "its claim stands"


def test_one_that_gives_none_is_succeeded(tmp_path: Path) -> None:
    write_holder(tmp_path, THERE)
    with locked(tmp_path, never, sign_seconds=0.4) as before:
        assert before == THERE
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_of_two_that_saw_it_die_one_is_refused(tmp_path: Path) -> None:
    """The other claims it a moment after us, as a file system without common locks lets it."""
    write_holder(tmp_path, THERE)
    rival = Holder(9, "node-c", "boot-5")
    threading.Timer(0.7, write_holder, (tmp_path, rival)).start()
    taken = locked(tmp_path, never, sign_seconds=0.4)
    with pytest.raises(UsageError, match="in use by process 9 on node-c"), taken:
        pass


def test_what_proves_a_death() -> None:
    assert must_be_dead(Holder(1, "node-a", "boot-1"), HERE), "the kernel would know its lock"
    assert must_be_dead(Holder(1, "node-a", "boot-0"), HERE), "the machine has started anew"
    assert not must_be_dead(THERE, HERE)


def test_a_torn_claim_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text('{"pid": 12')
    with locked(tmp_path, never) as before:
        assert before is None
