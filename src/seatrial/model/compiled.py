"""Where compiled code is kept, so that a training that starts again does not compile again."""

import os
from pathlib import Path

from torch._inductor.runtime.cache_dir_utils import default_cache_dir


def keep_compiled_code() -> Path:
    """Let torch.compile and Triton keep their code in the user's cache; returns the folder of the former.

    Their own place is under the folder for temporary files, which a restarted machine or container empties. What the
    user has set in TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR stays. Call before anything is compiled; several
    processes may share the folders. torch keys the entries by code, versions and device (its FX graph cache, on by
    default: TORCHINDUCTOR_FX_GRAPH_CACHE).
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seatrial" / "compile"
    # Importing some parts of torch sets the first to torch's own choice, as if the user had.
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR", default_cache_dir()) == default_cache_dir():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(home / "inductor")
    os.environ.setdefault("TRITON_CACHE_DIR", str(home / "triton"))
    return Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
