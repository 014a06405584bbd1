"""torchrun whose ranks are forked from it: ``python -m tests.dist.launched ARGUMENTS -- MODULE ...``.

It is torchrun's own agent, with its own restarts; only that a rank, also one that is started again, need not import
torch anew. MODULE has a function ``main`` that takes strings.
"""

import importlib
import sys

from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args


def main(arguments: list[str]) -> None:
    at = arguments.index("--")
    module, *rest = arguments[at + 1 :]
    importlib.import_module(module)
    config, _, _ = config_from_args(parse_args([*arguments[:at], module]))
    config.start_method = "fork"
    elastic_launch(config, entrypoint=_be_rank)(module, rest)


def _be_rank(module: str, arguments: list[str]) -> None:
    import torch

    torch.set_num_threads(1)
    importlib.import_module(module).main(*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
