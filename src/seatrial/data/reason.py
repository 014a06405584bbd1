"""Why a row is turned away, as countable constants, and the exception that carries one up to its converter."""

from enum import StrEnum

from seatrial.data.conversation import Rejection


class Reason(StrEnum):
    """One word per defect; the detail that goes with it says where and what."""

    # the row
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    WRONG_SHAPE = "wrong_shape"
    UNKNOWN_FORMAT = "unknown_format"
    TOO_LONG = "too_long"
    NESTED_TOO_DEEP = "nested_too_deep"
    NOT_ENCODABLE = "not_encodable"
    # its tools
    BAD_TOOLS = "bad_tools"
    BAD_SCHEMA = "bad_schema"
    DUPLICATE_TOOL = "duplicate_tool"
    # its turns
    NO_TURNS = "no_turns"
    UNKNOWN_ROLE = "unknown_role"
    ROLE_ORDER = "role_order"
    LAST_TURN_NOT_ASSISTANT = "last_turn_not_assistant"
    EMPTY_TURN = "empty_turn"
    UNTERMINATED_TURN = "unterminated_turn"
    STRAY_MARKER = "stray_marker"
    # its calls
    MALFORMED_CALL = "malformed_call"
    TEXT_AFTER_CALL = "text_after_call"
    ARGUMENTS_NOT_JSON = "arguments_not_json"
    ARGUMENTS_NOT_AN_OBJECT = "arguments_not_an_object"
    UNDECLARED_TOOL = "undeclared_tool"
    UNDECLARED_ARGUMENT = "undeclared_argument"
    ARGUMENTS_VIOLATE_SCHEMA = "arguments_violate_schema"
    # calls and their responses
    CALL_IDS_DO_NOT_PAIR = "call_ids_do_not_pair"
    CALL_WITHOUT_RESPONSE = "call_without_response"
    RESPONSE_WITHOUT_CALL = "response_without_call"
    MALFORMED_RESPONSE = "malformed_response"
    # a faithful row that is not wanted
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    CONTAMINATED = "contaminated"
    STRADDLES_SPLIT = "straddles_split"


UNWANTED = frozenset({Reason.DUPLICATE, Reason.NEAR_DUPLICATE, Reason.CONTAMINATED, Reason.STRADDLES_SPLIT})


class Unfaithful(Exception):
    """Raised below a converter where a row cannot be read faithfully; the converter returns the rejection."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.rejection = Rejection(reason.value, detail)


def excerpt(value: object, length: int = 120) -> str:
    """``value`` on one line, short enough for a report."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text[: 2 * length].split())
    return text if len(text) <= length else text[: length - 3] + "..."
