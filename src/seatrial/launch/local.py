"""All nodes of a job on this machine, each a process: no scheduler at all."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from seatrial.launch.job import Rendered
from seatrial.launch.ranks import code_of
from seatrial.stop import stop_requests

_POLL_SECONDS = 0.2


def run_here(rendered: Rendered, folder: Path, port: int) -> int:
    """Start every node, show what the first one says, and wait for all; a request to stop is passed on.

    Args:
        folder: with the script in it; what each node says goes to ``node-K.log`` there.
        port: where the nodes meet.

    Returns:
        0 when all did, the first node's code when it failed, else the most telling one.
    """
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
    script = folder / rendered.files[0][0]
    with ExitStack() as open_files, stop_requests() as stop:
        nodes = []
        for number, (_, _, *place) in enumerate(rendered.submit):
            log = open_files.enter_context((folder / f"node-{number}.log").open("wb"))
            argv = ["bash", str(script), *place, str(port)]
            nodes.append(
                subprocess.Popen(argv, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            )
        shown = open_files.enter_context((folder / "node-0.log").open("rb"))
        told = False
        try:
            while any(node.poll() is None for node in nodes):
                if stop.reason and not told:
                    told = True
                    for node in nodes:
                        node.send_signal(signal.SIGTERM)
                _show(shown.read())
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            for node in nodes:
                node.kill()
            raise
        _show(shown.read())
    codes = [node.returncode for node in nodes]
    return codes[0] if codes[0] > 0 else code_of(code for code in codes if code) if any(codes) else 0


def _show(said: bytes) -> None:
    sys.stderr.buffer.write(said)
    sys.stderr.buffer.flush()
