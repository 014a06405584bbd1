"""The base of what measurements report."""

from pydantic import ConfigDict

from seatrial.records import Frozen


class Facts(Frozen):
    """Every field is required and no number may be NaN or infinite, so that a hole cannot be judged."""

    model_config = ConfigDict(allow_inf_nan=False)
