"""Percentiles, conclusions and the division of a budget."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.accept import catalogue
from seatrial.accept.check import conclude, measurement, percentile
from seatrial.errors import UsageError
from seatrial.records import Verdict


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.floats(0, 100))
def test_a_percentile_is_a_sample_and_grows(samples: list[float], percent: float) -> None:
    assert percentile(samples, percent) in samples
    assert percentile(samples, 0) == min(samples) <= percentile(samples, percent) <= percentile(samples, 100)
    assert percentile(samples, 100) == max(samples)


def test_percentiles_by_nearest_rank() -> None:
    samples = [float(value) for value in range(1, 201)]
    assert (percentile(samples, 50), percentile(samples, 99), percentile(samples, 95)) == (100.0, 198.0, 190.0)
    assert math.isnan(percentile([], 50))
    assert measurement("m", samples, "s", "here").spread == 90.0


def test_the_gravest_finding_gives_verdict_and_reason() -> None:
    findings = [
        (Verdict.PASS, "fine"),
        (Verdict.WARN, "odd"),
        (Verdict.FAIL, "slow"),
        (Verdict.FAIL, "wrong"),
        (Verdict.INCONCLUSIVE, "unknown"),
    ]
    judgement = conclude(findings)
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, "slow; wrong")
    assert conclude(findings[:2]).reason == "odd"
    assert conclude([(Verdict.PASS, "fine"), (Verdict.SKIPPED, "recorded")]).reason == "fine; recorded"
    assert conclude([]).verdict is Verdict.INCONCLUSIVE
    assert conclude([(Verdict.SKIPPED, "recorded")]).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("3m", 180), ("2h", 7200), ("24h", 86400), ("15", 15)])
def test_budgets(text: str, seconds: float) -> None:
    assert catalogue.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "3 days", "-3m", "0s", "m", "1e3s"])
def test_bad_budgets(text: str) -> None:
    with pytest.raises(UsageError, match="--budget"):
        catalogue.seconds_of(text)


def test_choosing_keeps_the_order_of_the_ladder() -> None:
    chosen = [check.name for check in catalogue.choose(["storage", "host.cpu"])]
    assert chosen == ["host.cpu", "storage.space", "storage.disk", "storage.mounts"]
    assert catalogue.choose([]) == catalogue.LADDER
    with pytest.raises(UsageError, match="gpus: no such group or check; groups: host, gpu, fabric"):
        catalogue.choose(["gpus"])


@given(st.floats(1, 86400))
def test_a_budget_is_never_overspent_by_sampling(budget_seconds: float) -> None:
    seconds = catalogue.sampling_seconds(catalogue.LADDER, budget_seconds)
    least = len(seconds) * catalogue.LEAST_SECONDS
    assert sum(seconds.values()) <= catalogue.SAMPLING_SHARE * budget_seconds + least
    assert all(value >= catalogue.LEAST_SECONDS for value in seconds.values())


def test_names_are_unique_and_every_check_says_what_to_do() -> None:
    names = [check.name for check in catalogue.LADDER]
    assert len(set(names)) == len(names)
    for check in catalogue.LADDER:
        assert check.question.endswith("?") and check.remedy, check.name
