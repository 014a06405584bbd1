"""Docker's answers, as its client prints them."""

import pytest

from seatrial.launch.preflight.container import judge_image, judge_image_file, judge_server
from seatrial.shell import Output
from tests.launch.preflight.jobs import FAIL, PASS, SKIPPED, WARN, answer

NO_DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n"
HERE = answer("sha256:0a1b\n")
NOT_HERE = answer(stderr="Error response from daemon: No such image: x/y:1\n", returncode=1)
MISSING = answer(stderr="no such manifest: docker.io/x/y:1\n", returncode=1)
DENIED = answer(stderr="denied: requested access to the resource is denied\n", returncode=1)
ABSENT = answer(stderr="docker: no such program", returncode=None)
OFFLINE = answer(stderr='Get "https://registry-1.docker.io/v2/": dial tcp: lookup failed: no such host\n', returncode=1)


def test_the_daemon() -> None:
    assert judge_server(answer("28.1.1\n")).verdict is PASS
    assert "systemctl start docker" in judge_server(answer(stderr=NO_DAEMON, returncode=1)).remedy
    assert judge_server(ABSENT).remedy == "install Docker"


@pytest.mark.parametrize(
    ("local", "remote", "verdict"),
    [
        (HERE, OFFLINE, PASS),
        (NOT_HERE, answer("{}"), PASS),
        (NOT_HERE, MISSING, FAIL),
        (NOT_HERE, DENIED, FAIL),
        (NOT_HERE, OFFLINE, SKIPPED),
        (None, MISSING, FAIL),
        (None, DENIED, WARN),  # the cluster may have a login of its own
        (None, ABSENT, SKIPPED),
    ],
)
def test_images(local: Output | None, remote: Output, verdict: object) -> None:
    finding = judge_image("x/y:1", local, remote)
    assert finding.verdict is verdict
    assert finding.remedy or verdict is PASS


def test_files_that_enroot_made() -> None:
    assert judge_image_file("/mnt/data/seatrial.sqsh", is_there=True).verdict is PASS
    missing = judge_image_file("/mnt/data/seatrial.sqsh", is_there=False)
    assert missing.verdict is FAIL
    assert "enroot import --output /mnt/data/seatrial.sqsh" in missing.remedy
