"""torchrun that ends with the exit code of its ranks, where it would itself end with 1 whatever they said.

``python -m seatrial.launch.ranks`` takes torchrun's arguments.
"""

import os
import sys
from collections.abc import Iterable

from seatrial.dist.orphan import die_with
from seatrial.errors import ImpossibleConfiguration, IntegrityError, Preempted, SeatrialError, UsageError

TELLING = tuple(kind.exit_code for kind in (UsageError, IntegrityError, ImpossibleConfiguration, Preempted))
"""Codes that say more than that something failed, the most telling first."""


def main() -> None:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    die_with(os.getppid())  # its ranks die with it: nothing trains on when whoever answers for it was killed
    try:
        torchrun(sys.argv[1:])
    except ChildFailedError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(code_of(failure.exitcode for failure in error.failures.values()))


def code_of(codes: Iterable[int]) -> int:
    """One for the node, from those of its ranks that failed. Negative ones, of ranks that were killed, are failures.

    A rank that was only told by a broken connection that another one ended says less than the other one.
    """
    seen = set(codes)
    return next((code for code in TELLING if code in seen), SeatrialError.exit_code)


if __name__ == "__main__":
    main()
