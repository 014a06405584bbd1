"""A trigger strikes once, at its moment, whoever comes to it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.drill.acts import Injected, Trigger, descendants, parent_of
from seatrial.drill.fault import Act, Injection, Moment, On, Order


def order(folder: Path, *acts: Act, on: On = "rank", step: int = 4) -> Order:
    moment = Moment(phase="step", when="before", step=step)
    injections = tuple(Injection(act=act, on=on, rank=1, moment=moment) for act in acts)
    return Order(folder=folder, run=folder / "run", injections=injections)


def test_strikes_once_and_leaves_its_mark_first(tmp_path: Path) -> None:
    told = order(tmp_path, "exception")
    one, other = Trigger(told, 1, os.getpid()), Trigger(told, 1, os.getpid())
    for phase, when, step in (("step", "before", 3), ("step", "after", 4), ("save.write", "before", 4)):
        one.reached(phase, when, step)
    assert not told.mark(0).exists()
    with pytest.raises(Injected):
        one.reached("step", "before", 5)
    mark = json.loads(told.mark(0).read_text())
    assert (mark["rank"], mark["phase"], mark["step"]) == (1, "step", 5)
    one.reached("step", "before", 6)
    other.reached("step", "before", 6)  # another process of the same rank


def test_another_rank_is_left_alone(tmp_path: Path) -> None:
    assert Trigger(order(tmp_path, "exception"), 0, os.getpid()).injection is None


def test_the_second_waits_for_the_first_and_strikes_a_later_process(tmp_path: Path) -> None:
    told = order(tmp_path, "exception", "EIO")
    first = Trigger(told, 1, os.getpid())
    with pytest.raises(Injected):
        first.reached("step", "before", 4)
    first.reached("step", "before", 5)
    with pytest.raises(OSError, match="Input/output error"):
        Trigger(told, 1, os.getpid()).reached("step", "before", 4)
    assert Trigger(told, 1, os.getpid()).injection is None


@pytest.mark.parametrize(
    ("act", "ended_by"), [("SIGKILL", signal.SIGKILL), ("abort", signal.SIGABRT), ("segfault", signal.SIGSEGV)]
)
def test_acts_that_end_the_process(tmp_path: Path, act: Act, ended_by: signal.Signals) -> None:
    told = order(tmp_path, act)
    (tmp_path / "order.json").write_text(told.model_dump_json())
    code = (
        "import os, sys; from pathlib import Path; from seatrial.drill.acts import Trigger; "
        "from seatrial.drill.fault import Order; told = Order.model_validate_json(Path(sys.argv[1]).read_text()); "
        "Trigger(told, 1, os.getpid()).reached('step', 'before', 4)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "order.json")], timeout=60, check=False)
    assert done.returncode == -ended_by
    assert told.mark(0).exists()


def test_who_belongs_to_whom() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert parent_of(child.pid) == os.getpid()
        assert child.pid in descendants(os.getpid())
        assert os.getpid() not in descendants(child.pid)
        child.kill()


def test_the_interpreters_lock_is_kept_through_signals(tmp_path: Path) -> None:
    """A thread beside it gets no turn, though a signal whose handler is C comes meanwhile."""
    code = (
        "import faulthandler, signal, threading, time; from seatrial.drill.acts import _keep_the_interpreters_lock; "
        "faulthandler.register(signal.SIGUSR2); "
        "threading.Thread(target=lambda: (time.sleep(0.5), print('had a turn', flush=True)), daemon=True).start(); "
        "print('ready', flush=True); _keep_the_interpreters_lock()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGUSR2)
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout=1.5)
        child.kill()
        assert child.communicate()[0] == ""
