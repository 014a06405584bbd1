"""Every dataset format that can be read, one file each: a row in, a conversation or a rejection out."""

from seatrial.data.sources import glaive, sharegpt, xlam
from seatrial.data.sources.turns import Converter

CONVERTERS: dict[str, Converter] = {
    "glaive": glaive.convert,
    "xlam": xlam.convert,
    "sharegpt": sharegpt.convert,
}
