"""InfiniBand and RoCE ports: up, at their rate, and without new errors after the load above."""

import json
from collections import Counter
from pathlib import Path

from seatrial.accept.check import Check, Finding, Judgement, Request, conclude
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limits
from seatrial.records import Measurement, Verdict

CLASS = Path("/sys/class/infiniband")
SNAPSHOT = "rdma-before.json"
FATAL_COUNTERS = ("link_downed", "link_error_recovery")
ERROR_COUNTERS = ("symbol_error", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors")
"""By the InfiniBand specification, volume 1, 16.1.3.5 (PortCounters), as the kernel names them."""


class Port(Facts):
    """``state`` and ``physical`` as the kernel says: ``4: ACTIVE``, ``5: LinkUp``. ``rate_gbit``: of the link."""

    device: str
    port: int
    layer: str
    state: str
    physical: str
    rate_gbit: float

    @property
    def name(self) -> str:
        return f"{self.device} port {self.port}"


class PortsFacts(Facts):
    ports: tuple[Port, ...]


class PortErrorsFacts(Facts):
    """Counters by port and name. ``before`` is None where the first look was not taken."""

    before: dict[str, dict[str, int]] | None
    after: dict[str, dict[str, int]]


def read_ports(root: Path = CLASS) -> tuple[Port, ...]:
    return tuple(
        Port(
            device=port.parent.parent.name,
            port=int(port.name),
            layer=_read(port / "link_layer"),
            state=_read(port / "state"),
            physical=_read(port / "phys_state"),
            rate_gbit=float(_read(port / "rate").split(" ")[0] or 0),
        )
        for port in sorted(root.glob("*/ports/*"))
    )


def read_counters(root: Path = CLASS) -> dict[str, dict[str, int]]:
    return {
        f"{port.parent.parent.name} port {port.name}": {
            name: int(text)
            for name in (*FATAL_COUNTERS, *ERROR_COUNTERS)
            if (text := _read(port / "counters" / name)).isdigit()
        }
        for port in sorted(root.glob("*/ports/*"))
    }


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def measure_ports(request: Request) -> PortsFacts:
    (request.directory / SNAPSHOT).write_text(json.dumps(read_counters()))
    return PortsFacts(ports=read_ports())


def measure_port_errors(request: Request) -> PortErrorsFacts:
    snapshot = request.directory / SNAPSHOT
    before = json.loads(snapshot.read_text()) if snapshot.exists() else None
    return PortErrorsFacts(before=before, after=read_counters())


def judge_ports(facts: PortsFacts, limits: Limits) -> Judgement:
    """Ports that were never cabled are often there on purpose: they are named, and fail only beside equal ones."""
    if not facts.ports:
        return Judgement(Verdict.SKIPPED, "no RDMA port here")
    up = [port for port in facts.ports if "ACTIVE" in port.state]
    findings: list[Finding] = []
    for port in facts.ports:
        if port not in up:
            verdict = Verdict.FAIL if "Polling" in port.physical or "LinkUp" in port.physical else Verdict.WARN
            told = f"{port.name} is {port.state or 'silent'}, {port.physical or 'no physical state'}"
            findings.append((verdict, told))
    rates = Counter((port.layer, port.rate_gbit) for port in up)
    for layer in sorted({port.layer for port in up}):
        usual = max((rate for (of, rate) in rates if of == layer), key=lambda rate: (rates[layer, rate], rate))
        findings += [
            (Verdict.FAIL, f"{port.name} runs at {port.rate_gbit:g} Gbit/s, its equals at {usual:g}")
            for port in up
            if port.layer == layer and port.rate_gbit < usual
        ]
    if not up:
        findings.append((Verdict.FAIL, "no RDMA port is active"))
    shown = ", ".join(f"{count} x {layer} {rate:g} Gbit/s" for (layer, rate), count in rates.items())
    numbers = [
        Measurement(name="port rate", value=port.rate_gbit, unit="Gbit/s", n=1, spread=0.0, where=port.name)
        for port in up
    ]
    return conclude(findings or [(Verdict.PASS, f"{len(up)} ports active: {shown}")], numbers)


def judge_port_errors(facts: PortErrorsFacts, limits: Limits) -> Judgement:
    """Only what was counted in between belongs to this load; what stood there before is history."""
    if facts.before is None:
        return Judgement(Verdict.INCONCLUSIVE, "the counters were not read before the load: run fabric.rdma too")
    if not facts.after and not facts.before:
        return Judgement(Verdict.SKIPPED, "no RDMA port here")
    findings: list[Finding] = []
    for port in dict.fromkeys([*facts.before, *facts.after]):
        before, after = facts.before.get(port), facts.after.get(port)
        if before is None or after is None:
            told = "is gone" if after is None else "appeared"
            findings.append((Verdict.FAIL if after is None else Verdict.WARN, f"{port} {told} since the load began"))
        elif not after or before.keys() != after.keys():
            findings.append((Verdict.INCONCLUSIVE, f"{port} does not show the same counters before and after"))
        else:
            findings += _growth(port, before, after)
    return conclude(findings or [(Verdict.PASS, f"{len(facts.after)} ports: no new error under the load")])


def _growth(port: str, before: dict[str, int], after: dict[str, int]) -> list[Finding]:
    return [
        (
            Verdict.FAIL if counter in FATAL_COUNTERS else Verdict.WARN,
            f"{port}: {counter} grew by {after[counter] - before[counter]} under the load",
        )
        for counter in after
        if after[counter] > before[counter]
    ]


BEFORE_LOAD = (
    Check(
        name="fabric.rdma",
        question="Is every InfiniBand or RoCE port up, at the rate of its equals?",
        remedy="look at ibstat and the switch's port; reseat or replace the cable or transceiver of the named port",
        facts=PortsFacts,
        measure=measure_ports,
        judge=judge_ports,
    ),
)
AFTER_LOAD = (
    Check(
        name="fabric.rdma_errors",
        question="Did any port count errors, or lose its link, under the load above?",
        remedy="clean or replace the cable of the named port, then its transceiver; a ticket goes with both counts",
        facts=PortErrorsFacts,
        measure=measure_port_errors,
        judge=judge_port_errors,
    ),
)
