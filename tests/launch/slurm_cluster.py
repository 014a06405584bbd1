"""A real Slurm on this machine: a controller, and nodes that are network namespaces with names of their own.

Needs root, slurm-wlm, munge and iproute2. It touches nothing of the system's own Slurm, and everything that it starts
ends with it.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter", "unshare")
UP_SECONDS = 60
CONFIGURATION = """\
ClusterName=trial
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire is also how long a job that was put back waits for its next start; under 5 it never starts
AuthInfo=socket={base}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool-%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd-%n.log
PlugStackConfig={base}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_min_interval=0,bf_interval=1,batch_sched_delay=0
PriorityType=priority/basic
SlurmctldTimeout=10
SlurmdTimeout=10
BatchStartTimeout=10
KillWait=5
MessageTimeout=10
TCPTimeout=2
MinJobAge=600
ReturnToService=2
JobRequeue=1
LaunchParameters=disable_send_gids
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=DEFAULT CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=16000 Gres=gpu:8
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no cluster here; empty when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    found = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"not installed: {', '.join(found)} (slurm-wlm, munge, iproute2)" if found else ""


@dataclass(frozen=True)
class Cluster:
    """A running Slurm. ``prefix`` begins the names of its namespaces; ``network`` its addresses."""

    base: Path
    prefix: str
    network: str
    nodes: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _path(), "SLURM_CONF": str(self.base / "slurm.conf")}

    def run(self, *argv: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(
            argv, env={**self.environment, **(environment or {})}, cwd=cwd, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}{done.stdout}"
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What is known of a job, by the names that scontrol gives."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.partition("=")[::2] for word in words)

    def start_node(self, node: str) -> None:
        # Without a name server, which nothing here could reach, addresses that are in no list are given up at once.
        inside = (
            'mount --bind "$1" /etc/hosts; mount --bind /dev/null /etc/resolv.conf; hostname "$2"; slurmd -N "$2" -c'
        )
        enter = ["nsenter", f"--net=/run/netns/{self._namespace(node)}", "unshare", "--uts", "--mount"]
        self.run(*enter, "sh", "-c", inside, "sh", str(self.base / "hosts"), node)

    def kill_node(self, node: str) -> None:
        """As a loss of power does: its slurmd and all that runs there, at once."""
        _kill_all_in(self._namespace(node))

    def _namespace(self, node: str) -> str:
        return f"{self.prefix}-{node}"


@contextmanager
def cluster(base: Path, nodes: int, *, plugin: Path | None = None) -> Iterator[Cluster]:
    """Start it, and wait until all nodes are idle."""
    number = os.getpid() % 60_000
    made = Cluster(
        base=base,
        prefix=f"st{number}",
        network=f"10.{100 + number // 250 % 100}.{number % 250}",
        nodes=tuple(f"node{count + 1}" for count in range(nodes)),
    )
    base.mkdir(parents=True)
    base.chmod(0o755)
    try:
        _write(made, plugin)
        _make_namespaces(made)
        _start_munge(made)
        made.run("slurmctld", "-c")
        for node in made.nodes:
            made.start_node(node)
        _until_idle(made)
        yield made
    finally:
        _end(made)


def _write(made: Cluster, plugin: Path | None) -> None:
    base, host = made.base, socket.gethostname().partition(".")[0]
    addresses = {node: f"{made.network}.{count + 1}" for count, node in enumerate(made.nodes)}
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    (base / "slurm.conf").write_text(
        CONFIGURATION.format(
            base=base,
            host=host,
            address=f"{made.network}.254",
            port=port,
            nodes="\n".join(
                f"NodeName={node} NodeHostname={node} NodeAddr={address} Port=16818 State=UNKNOWN"
                for node, address in addresses.items()
            ),
        )
    )
    gpus = [base / f"gpu{number}" for number in range(8)]  # plain files stand in for devices
    for gpu in gpus:
        gpu.touch()
    (base / "gres.conf").write_text(f"NodeName=node[1-{len(made.nodes)}] Name=gpu File={base}/gpu[0-7]\n")
    (base / "plugstack.conf").write_text(f"required {plugin}\n" if plugin else "")
    names = [f"{made.network}.254 {host}", *(f"{address} {node}" for node, address in addresses.items())]
    (base / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")


def _make_namespaces(made: Cluster) -> None:
    bridge = made.prefix
    _ip("link", "add", bridge, "type", "bridge")
    _ip("addr", "add", f"{made.network}.254/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    for count, node in enumerate(made.nodes):
        space, cable = f"{made.prefix}-{node}", f"{made.prefix}v{count + 1}"
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", bridge, "up")
        _ip("-n", space, "addr", "add", f"{made.network}.{count + 1}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")


def _start_munge(made: Cluster) -> None:
    munge = made.base / "munge"
    munge.mkdir(mode=0o755)
    (munge / "log").mkdir(mode=0o700)
    key = munge / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    made.run(
        "munged",
        "--force",
        "--num-threads=2",
        f"--key-file={key}",
        f"--socket={munge / 'socket'}",
        f"--pid-file={made.base / 'munged.pid'}",
        f"--log-file={munge / 'log' / 'munged.log'}",
        f"--seed-file={munge / 'seed'}",
    )


def _until_idle(made: Cluster) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while made.run("sinfo", "-h", "-N", "-o", "%T").split().count("idle") < len(made.nodes):
        assert time.monotonic() < deadline, "".join(path.read_text()[-2000:] for path in made.base.glob("*.log"))
        time.sleep(0.2)


def _end(made: Cluster) -> None:
    pids = [int(file.read_text()) for file in made.base.glob("*.pid") if file.read_text().strip()]
    for node in made.nodes:
        _kill_all_in(f"{made.prefix}-{node}")
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for count, node in enumerate(made.nodes):
        _ip("link", "del", f"{made.prefix}v{count + 1}", check=False)  # the namespace takes its time with it
        _ip("netns", "del", f"{made.prefix}-{node}", check=False)
    _ip("link", "del", made.prefix, check=False)


def _kill_all_in(namespace: str) -> None:
    listed = subprocess.run(["ip", "netns", "pids", namespace], env={"PATH": _path()}, capture_output=True, text=True)
    for pid in listed.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], env={"PATH": _path()}, capture_output=True, text=True)
    assert done.returncode == 0 or not check, f"ip {' '.join(words)}: {done.stderr}"


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
