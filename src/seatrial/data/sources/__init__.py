"""Every dataset format that can be read, one file each: a row in, a conversation or a rejection out."""

from seatrial.data.conversation import Conversation, Rejection
from seatrial.data.reason import Reason, excerpt
from seatrial.data.sources import glaive, hermes, openai, sharegpt, toolace, xlam
from seatrial.data.sources.turns import Converter, Row


def detect(row: Row) -> str | None:
    """Name of the format that a row is in, by its keys and by the marks that its turns bear; None when by none."""
    if "chat" in row and "system" in row:
        return "glaive"
    if "query" in row and "answers" in row:
        return "xlam"
    turns = row.get("conversations")
    if not isinstance(turns, list):
        return "openai" if row.keys() & {"messages", "conversation", "prompt", "completion"} else None
    speakers = {turn.get("from") for turn in turns if isinstance(turn, dict) and isinstance(turn.get("from"), str)}
    if not speakers and any(isinstance(turn, dict) and "role" in turn for turn in turns):
        return "openai"
    if isinstance(system := row.get("system"), str) and toolace.ANNOUNCEMENT.search(system):
        return "toolace"
    if "tool" in speakers or "schema" in row or any(_is_tagged(turn) for turn in turns):
        return "hermes"
    return "sharegpt"


def convert_auto(row: Row) -> Conversation | Rejection:
    """A row of whichever format :func:`detect` sees in it."""
    source = detect(row)
    if source is None:
        return Rejection(Reason.UNKNOWN_FORMAT.value, f"keys: {excerpt(', '.join(map(str, row)))}")
    return CONVERTERS[source](row)


def _is_tagged(turn: object) -> bool:
    text = turn.get("value") if isinstance(turn, dict) else None
    return isinstance(text, str) and ("<tool_call>" in text or "<tools>" in text)


CONVERTERS: dict[str, Converter] = {
    "auto": convert_auto,
    "glaive": glaive.convert,
    "xlam": xlam.convert,
    "hermes": hermes.convert,
    "toolace": toolace.convert,
    "openai": openai.convert,
    "sharegpt": sharegpt.convert,
}
