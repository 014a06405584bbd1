"""Pods without a cluster: each has its own network, host name, processes and mounts, on one machine.

A pod runs the very command of a manifest, as process 1, with the environment, the mounted settings and the names that
Kubernetes would give it. A pod that replaces another has another address and the same name. No image is pulled: the
file system below the mounts is this machine's, and ``python`` is the one that runs the tests.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.shell import run

Object = dict[str, Any]

MOST_CLUSTERS = 200
"""On one machine at a time."""


@dataclass
class Pod:
    """One container that runs, or has run.

    Attributes:
        disrupted: by somebody else than itself, as by a drained node.
        killed: by us: `unshare` of util-linux 2.38 does not tell.
    """

    name: str
    space: str
    address: str
    process: "subprocess.Popen[bytes]"
    log: Path
    disrupted: bool = False
    killed: bool = False

    @property
    def first_process(self) -> int | None:
        """Process 1 of the pod, as this machine counts."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with suppress(OSError):
            for child in children.read_text().split():
                return int(child)
        return None

    def exit_code(self) -> int | None:
        """As Kubernetes reports it; None while it runs."""
        code = self.process.poll()
        if code is not None and self.killed:
            return 128 + signal.SIGKILL
        return 128 - code if code is not None and code < 0 else code


@dataclass
class Cluster:
    """A namespace of Kubernetes.

    Attributes:
        folder: for logs and volumes.
        number: which of this machine's clusters it is.
        objects: what was applied: ConfigMaps and claims are looked up here.
        secrets: values by name of Secret and key.
    """

    folder: Path
    number: int
    objects: list[Object] = field(default_factory=list)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _made: list[Pod] = field(default_factory=list)
    _hosts: dict[str, str] = field(default_factory=dict)

    def start(self, name: str, spec: Object, *, names: tuple[str, ...], told: Mapping[str, str]) -> Pod:
        """Start a pod.

        Args:
            spec: of the pod, with one container.
            names: what other pods may call it.
            told: environment variables and, by their field path, annotations that its controller gives it.
        """
        number = len(self._made) + 1
        space, address = f"pod-{self.number}-{number}", f"10.94.{self.number}.{number}"
        self._give_address(space, address)
        (container,) = spec["containers"]
        environment = self._environment(container, told)
        command = [expand(word, environment) for word in container["command"]]
        work = shlex.quote(container["workingDir"])
        begin = ["set -e", f"hostname {shlex.quote(name)}", *self._mounts(name, number, spec, container)]
        script = "\n".join([*begin, f"mkdir -p {work}", f"cd {work}", 'exec "$@"'])
        for each in (*names, *([name] if "dnsConfig" in spec or not names else [])):
            self._hosts[each] = address
        self._tell_names()
        enter = ["nsenter", f"--net=/run/netns/{space}", "unshare", "--uts", "--mount", "--pid", "--fork"]
        log = self.folder / f"{name}.{number}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*enter, "--kill-child", "--mount-proc", "sh", "-c", script, "sh", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        pod = Pod(name, space, address, process, log)
        self._made.append(pod)
        return pod

    def evict(self, pod: Pod) -> None:
        """Ask it to stop, as a drained node or a preemption does. The caller waits for it."""
        pod.disrupted = True
        first = pod.first_process
        assert first is not None, f"{pod.name} does not run"
        os.kill(first, signal.SIGTERM)

    def lose(self, pod: Pod) -> None:
        """Its node loses power: no signal is caught, and no connection closed."""
        pod.disrupted = True
        run(["ip", "-n", pod.space, "link", "set", "eth0", "down"], timeout_seconds=30)
        self.kill(pod)

    def kill(self, pod: Pod) -> None:
        """SIGKILL to everything in it, as when it takes too much memory."""
        first = pod.first_process
        if first is not None:
            pod.killed = True
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        pod.process.wait(30)

    def remove(self) -> None:
        for pod in self._made:
            if pod.exit_code() is None:
                self.kill(pod)
            run(["ip", "link", "del", pod.space], timeout_seconds=30)
            run(["ip", "netns", "del", pod.space], timeout_seconds=30)

    def _give_address(self, space: str, address: str) -> None:
        for words in (
            f"ip netns add {space}",
            f"ip link add {space} type veth peer name eth0 netns {space}",
            f"ip link set {space} master pods-{self.number} up",
            f"ip -n {space} addr add {address}/24 dev eth0",
            f"ip -n {space} link set eth0 up",
            f"ip -n {space} link set lo up",
        ):
            made = run(words.split(), timeout_seconds=30)
            assert made.ok, made

    def _tell_names(self) -> None:
        """All pods share one file of names, as they share one DNS."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self._hosts.items())]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")

    def _environment(self, container: Object, told: Mapping[str, str]) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": programs, "HOME": str(self.folder), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        given = {name: value for name, value in told.items() if "." not in name}
        for each in container["env"]:
            if "value" in each:
                value = expand(each["value"], environment)
            elif "fieldRef" in each["valueFrom"]:
                path = each["valueFrom"]["fieldRef"]["fieldPath"]
                value = told[path] if path in told else {"spec.nodeName": "this-machine"}[path]
            else:
                place = each["valueFrom"]["secretKeyRef"]
                value = self.secrets[place["name"]][place["key"]]
            environment[each["name"]] = value
        return environment | given  # controllers append theirs, and the last wins

    def _mounts(self, pod: str, number: int, spec: Object, container: Object) -> Iterator[str]:
        """Shell lines that mount the pod's volumes, and the names of other pods."""
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for at, mount in enumerate(container["volumeMounts"]):
            path, volume = Path(mount["mountPath"]), volumes[mount["name"]]
            if not path.exists():
                above = next(parent for parent in path.parents if parent.exists())
                layer = self.folder / f"layers-{number}-{at}"
                for part in ("upper", "work"):
                    (layer / part).mkdir(parents=True)
                layers = f"lowerdir={above},upperdir={layer}/upper,workdir={layer}/work"
                yield f"mount -t overlay -o {shlex.quote(layers)} overlay {shlex.quote(str(above))}"
                yield f"mkdir -p {shlex.quote(str(path))}"
            source = self._volume(pod, volume)
            if source is None:
                yield f"mount -t tmpfs tmpfs {shlex.quote(str(path))}"
            else:
                yield f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(path))}"
        yield f"mount --bind {shlex.quote(str(self.folder / 'hosts'))} /etc/hosts"
        yield "mount --bind /dev/null /etc/resolv.conf"  # no name server: a lookup fails at once

    def _volume(self, pod: str, volume: Object) -> Path | None:
        """A folder of this machine; None for memory."""
        if "emptyDir" in volume:
            return None
        if "persistentVolumeClaim" in volume:
            claim: Path = self.folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
            claim.mkdir(parents=True, exist_ok=True)
            return claim
        name = volume["configMap"]["name"]
        (data,) = (
            each["data"] for each in self.objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name
        )
        folder: Path = self.folder / "config-maps" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in data.items():
            (folder / file).write_text(content)
        return folder


@contextmanager
def cluster(folder: Path, *, secrets: Mapping[str, Mapping[str, str]] | None = None) -> Iterator[Cluster]:
    """A cluster that takes everything with it when it ends."""
    number = next((each for each in range(MOST_CLUSTERS) if _bridge("add", each, "type", "bridge")), None)
    assert number is not None, "no bridge can be made: does `ip link add x type bridge` work?"
    there = Cluster(folder, number, secrets=secrets or {})
    try:
        assert _bridge("set", number, "up")
        yield there
    finally:
        there.remove()
        _bridge("del", number)


def _bridge(act: str, number: int, *words: str) -> bool:
    """Making one fails where another process has a cluster of this number."""
    return run(["ip", "link", act, f"pods-{number}", *words], timeout_seconds=30).ok


def expand(value: str, environment: Mapping[str, str]) -> str:
    """What Kubernetes does to commands and variables: ``$(NAME)`` is its value where it is known, ``$$`` is ``$``."""

    def replaced(match: "re.Match[str]") -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, value)
