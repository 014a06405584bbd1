"""Limits with provenance: what a healthy part does, below what it fails, what physics allows, and who says so."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.errors import SettingsError
from seatrial.records import Frozen, Verdict
from seatrial.settings import load_settings

FAIL_SHARE, WARN_SHARE = 0.93, 0.97
"""Of the reference: healthy GPUs of one kind differ by up to 5 % (ml-engineering, compute/accelerator), so 7 % is a
fault and 3 % worth a look."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A floor for one quantity on one kind of part; more is better.

    ``reference`` is what a healthy part measures, ``bound`` what no part can exceed: a value above it is a broken
    measurement. Without ``fail`` the number is recorded, not judged.
    """

    name: str
    unit: str
    bound: float
    arithmetic: str
    source: str
    reference: float | None = None
    warn: float | None = None
    fail: float | None = None

    def judge(self, value: float, where: str) -> tuple[Verdict, str]:
        """Verdict on one value. A value that no healthy measurement can yield is INCONCLUSIVE."""
        shown = f"{where}: {self.name} {value:.4g} {self.unit}"
        if not math.isfinite(value) or value <= 0:
            return Verdict.INCONCLUSIVE, f"{shown} is not a measurement"
        if value > self.bound:
            return Verdict.INCONCLUSIVE, f"{shown} is above the physical bound of {self.bound:.4g}: broken measurement"
        if self.fail is None:
            return Verdict.SKIPPED, f"{shown} (recorded, not judged)"
        if value < self.fail:
            return Verdict.FAIL, f"{shown} is below the floor of {self.fail:.4g}"
        if self.warn is not None and value < self.warn:
            return Verdict.WARN, f"{shown} is below the expected {self.warn:.4g}"
        return Verdict.PASS, shown


def lint(limits: Iterable[Limit]) -> list[str]:
    """What is wrong with the limits: no source, against physics, or too low to fail anything."""
    problems = []
    for limit in limits:
        if not limit.source.strip() or not limit.arithmetic.strip():
            problems.append(f"{limit.name}: no source or no arithmetic")
        if not limit.bound > 0:
            problems.append(f"{limit.name}: the physical bound {limit.bound:g} is not positive")
        if limit.unit.endswith("/s") and not math.isfinite(limit.bound):
            problems.append(f"{limit.name}: a rate without a physical bound")
        if limit.fail is None:
            if limit.warn is not None:
                problems.append(f"{limit.name}: a warning level without a floor")
            continue
        if limit.reference is None:
            problems.append(f"{limit.name}: a floor without a reference")
            continue
        if limit.reference > limit.bound:
            problems.append(f"{limit.name}: reference {limit.reference:g} is above the bound {limit.bound:g}")
        if not limit.fail <= (limit.warn or limit.fail) <= limit.reference:
            problems.append(f"{limit.name}: demands more than the reference: fail <= warn <= reference is violated")
        if limit.fail < 0.5 * limit.reference:
            problems.append(f"{limit.name}: floor {limit.fail:g} is under half the reference {limit.reference:g}")
    return problems


@dataclass(frozen=True)
class Limits:
    """The user's own limits by name; they replace built-in ones and add those of parts that have none."""

    own: Mapping[str, Limit] = field(default_factory=dict)

    def of(self, built_in: Limit) -> Limit:
        return self.own.get(built_in.name, built_in)

    def named(self, name: str) -> Limit | None:
        return self.own.get(name)


class OwnLimit(Frozen):
    """What a contract says. ``unit`` and ``bound`` are needed only for a part that has no built-in limit."""

    fail: float
    source: str
    warn: float | None = None
    reference: float | None = None
    unit: str | None = None
    bound: float | None = None


class OwnLimits(Frozen):
    """A YAML file of own limits: ``limits: {"bf16 GEMM on H100 SXM": {fail: 740, source: annex B}}``."""

    limits: dict[str, OwnLimit]


def read_own_limits(path: Path, built_in: Mapping[str, Limit]) -> Limits:
    """Own limits over the built-in ones of the same name.

    Raises:
        SettingsError: the file cannot be read, or the lint refuses one of its limits.
    """
    given = load_settings(path, [], OwnLimits).limits
    own = {name: _merged(path, name, limit, built_in) for name, limit in given.items()}
    problems = lint(own.values())
    if problems:
        raise SettingsError("\n".join(f"{path}: {problem}" for problem in problems))
    return Limits(own)


def _merged(path: Path, name: str, given: OwnLimit, built_in: Mapping[str, Limit]) -> Limit:
    base = built_in.get(name)
    if base is None:
        if given.unit is None or given.bound is None:
            raise SettingsError(f"{path}: limits.{name}: no built-in limit has this name, so it needs unit and bound")
        base = Limit(name=name, unit=given.unit, bound=given.bound, arithmetic="", source="")
    return replace(
        base,
        unit=given.unit or base.unit,
        bound=given.bound or base.bound,
        reference=given.reference or given.warn or given.fail,
        warn=given.warn,
        fail=given.fail,
        arithmetic=f"given in {path}: floor {given.fail:g}",
        source=given.source,
    )
