"""The process that measures, so that a crash or a hang in a driver costs one answer and not the whole verdict.

One request as a line of JSON on standard input, one answer as a line of JSON on what was standard output. Whatever
libraries print goes to standard error. Start it by hand to repeat one measurement:
``echo '{"check": "host.gemm", "seconds": 2, "directory": "."}' | python -m seatrial.accept.worker``
"""

import json
import os
import sys

from seatrial.accept.catalogue import find
from seatrial.accept.check import Request
from seatrial.records import JsonObject


def answer(request: Request) -> JsonObject:
    """``facts`` when the measurement ran, else ``error`` with what stopped it."""
    check = find(request.check)
    try:
        facts = check.measure(request)
    except Exception as error:  # any failure to measure is an answer: INCONCLUSIVE, with this text
        return {"check": check.name, "error": f"{type(error).__name__}: {error}"}
    return {"check": check.name, "facts": facts.model_dump(mode="json")}


def main() -> None:
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as the driver counts them
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        text = json.dumps(answer(Request.model_validate_json(line))) + "\n"
        os.write(answers, text.encode())


if __name__ == "__main__":
    main()
