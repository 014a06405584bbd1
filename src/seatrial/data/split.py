"""Splitting by tool, so that the tools of the held-out rows are never seen in training."""

from hashlib import blake2b
from typing import Literal

from seatrial.data.conversation import Conversation

Split = Literal["train", "held_out", "straddling"]


def split_of(conversation: Conversation, held_out_share: float, seed: int) -> Split:
    """Where a row goes when ``held_out_share`` of all tool names is held out.

    A row that declares no held-out tool is for training. One is held out when every tool that it calls is (or, if it
    calls none, every tool that it declares), so that its answer rests on unseen tools alone. A row in between
    straddles: it would show a held-out tool in training or ask for a known one in the test. Whether a name is held
    out depends on the name and the seed only, so rows can be judged one by one and in any order.
    """
    declared = {tool.name for tool in conversation.tools}
    held_out = {name for name in declared if _is_held_out(name, held_out_share, seed)}
    if not held_out:
        return "train"
    called = {call.name for message in conversation.messages for call in message.tool_calls}
    return "held_out" if (called or declared) <= held_out else "straddling"


def _is_held_out(name: str, share: float, seed: int) -> bool:
    """Spelling variants of a name (``getWeather``, ``get_weather``) count as one tool."""
    plain = "".join(character for character in name.lower() if character.isalnum())
    digest = blake2b(f"{seed}:{plain}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64
