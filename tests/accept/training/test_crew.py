"""Ranks that train: real processes, some of which fail, are killed, or hang."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from seatrial.accept.training.crew import LAST_WORDS_SECONDS, Phase, train_on_ranks
from seatrial.dist.world import World
from seatrial.records import JsonObject


def sizes(rank: int, folder: Path, asked: object) -> tuple[Phase, Phase]:
    return partial(place, rank, asked), partial(place, rank, asked)


def place(rank: int, asked: object, world: World) -> JsonObject:
    """Where we are; rank 1 does what is asked of it, in the phase that is asked for."""
    phase, deed = asked if isinstance(asked, tuple) else ("", "")
    if rank == 1 and phase == ("alone" if world.size == 1 else "together"):
        match deed:
            case "raise":
                raise ValueError("no tensor today\nand more")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(600)
    return {"rank": world.rank, "size": world.size, "device": str(world.device)}


def ask(phase: str = "", deed: str = "", seconds: float = 90.0) -> list[JsonObject]:
    return train_on_ranks(sizes, 3, (phase, deed), on_gpus=False, seconds=seconds)


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Ranks are forked from a process that has imported everything: once, and not while somebody is timed."""
    ask()


def test_everybody_is_alone_first_and_then_among_the_others() -> None:
    assert ask() == [
        {
            "alone": {"rank": 0, "size": 1, "device": "cpu"},
            "together": {"rank": rank, "size": 3, "device": "cpu"},
        }
        for rank in range(3)
    ]


@pytest.mark.parametrize(
    ("deed", "says"),
    [("raise", "ValueError: no tensor today"), ("die", "ended with code -9 while it trained alone")],
)
def test_who_fails_alone_says_so_and_the_others_do_not_wait(deed: str, says: str) -> None:
    began = time.monotonic()
    told = ask("alone", deed)
    assert time.monotonic() - began < 60
    assert told[1] == {"error": says}
    for rank in (0, 2):
        assert told[rank]["alone"] == {"rank": 0, "size": 1, "device": "cpu"}
        assert "together" not in told[rank]


def test_who_hangs_together_is_told_from_who_waits() -> None:
    told = ask("together", "hang", seconds=LAST_WORDS_SECONDS + 8)
    assert told[1]["error"] == "hung while it trained together"
    assert all("alone" in one for one in told)
