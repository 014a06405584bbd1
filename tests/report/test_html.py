"""The page: complete, self-contained, and with every foreign string as text, never as markup."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seatrial.cli.main import app
from seatrial.report.collect import collect
from seatrial.report.html import render, samples
from seatrial.rundir import RunDir
from tests.report.conftest import HOSTILE, suite_rows, write_acceptance, write_evaluation

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
VOID = {"meta", "br", "img", "link", "input", "hr"}
SECTIONS = ["evaluation", "samples", "training", "timeline", "acceptance", "provenance"]


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses elements that are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.styles = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self.styles += data
        else:
            self.text += f"{data} "

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def page_of(path: Path) -> Page:
    return Page(render(collect(path), written=NOW))


def assert_self_contained(page: Page) -> None:
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "iframe", "img", "object", "embed"})
    assert all(link.startswith("#") for link in page.attributes("href"))
    assert page.attributes("src") == []
    styles = page.styles + " ".join(page.attributes("style"))
    assert "@import" not in styles
    references = re.findall(r"url\(([^)]*)\)", styles + " ".join(page.attributes("clip-path")))
    assert all(reference.startswith("#") for reference in references)


def test_a_whole_demo_on_one_page(demo: Path) -> None:
    page = page_of(demo)
    assert_self_contained(page)
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"] == SECTIONS
    assert "missing" not in " ".join(page.attributes("class"))
    text = " ".join(page.text.split())
    for said in (
        "2026-01-02 03:04 UTC",
        "acceptance WARN 1 of 2 checks passed",
        "interrupted once 4 steps run again, equal to the last digit",
        "hand-over 2.5e-06",
        "in all 200 s",
        "100 % 61.0 to 100.0",
        "from 0 %, 6 rows",
        "6 rows gained, 0 lost p = 0.031",
        "steps 11 to 14 were lost with attempt 1 and run again",
        "What to do: free some",
        "copy: 12.5 ± 0.3 GB/s (node 0)",
        "malformed call: not JSON",
        "optimizer.learning_rate 0.0002",
        "packages.torch 2.13.0",
    ):
        assert said in text, said


def test_hostile_strings_are_text(demo: Path) -> None:
    page = page_of(demo)
    assert HOSTILE in page.text
    assert_self_contained(page)


def test_charts_follow_the_page_and_do_not_share_ids(demo: Path) -> None:
    page = page_of(demo)
    assert sum(tag == "svg" for tag, _ in page.elements) == 5
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert {reference[1:] for reference in page.attributes("href")} <= set(ids)
    clips = re.findall(r"url\(#([^)]*)\)", " ".join(page.attributes("clip-path")))
    assert clips and set(clips) <= set(ids)
    colours = re.findall(r"(?:fill|stroke): ([^;]+)", "; ".join(page.attributes("style")))
    assert set(colours) <= {"none", "var(--muted)", "var(--rule)", "var(--accent)", "var(--alarm)"}


def test_what_is_missing_is_said(run: RunDir) -> None:
    text = page_of(run.path).text
    assert "Not evaluated." in text and "This machine was not accepted here." in text
    assert "No evaluated rows" in text
    assert "No step has been recorded." not in text


def test_a_run_that_has_just_begun_has_a_page(run: RunDir) -> None:
    for file in (run.metrics, run.events, run.outcome, run.provenance):
        file.unlink()
    page = page_of(run.path)
    assert_self_contained(page)
    for said in ("still running", "No step has been recorded.", "No events", "The run has no provenance.json."):
        assert said in page.text


def test_an_acceptance_alone_has_a_page(tmp_path: Path) -> None:
    write_acceptance(tmp_path / "acceptance.json")
    page = page_of(tmp_path)
    assert "No training run here" in page.text and "host.memory" in page.text


@pytest.mark.parametrize(("before", "after"), [(None, [0]), ([0], None), ([], []), ([*range(8)], [*range(8)])])
def test_every_half_of_a_comparison_can_be_shown(
    run: RunDir, before: list[int] | None, after: list[int] | None
) -> None:
    for name, right in (("before.iid.json", before), ("after.iid.json", after)):
        if right is not None:
            write_evaluation(run.evals / name, suite_rows(), right)
    page = page_of(run.path)
    assert_self_contained(page)
    assert ("No row of any suite was wrong." in page.text) == (after == [*range(8)])
    assert ("No row of any suite was right." in page.text) == (after == [])


def test_samples_take_suites_and_categories_in_turn(demo: Path) -> None:
    comparisons = collect(demo).comparisons
    right = samples(comparisons, right=True)
    assert [(sample.suite, sample.row.score.category) for sample in right[:3]] == [
        ("iid", "single"),
        ("unseen_values", "single"),
        ("iid", "irrelevant"),
    ]
    assert all(sample.row.score.right for sample in right)
    assert all(sample.before and sample.before.id == sample.row.id for sample in right)
    assert [sample.row.id for sample in samples(comparisons, right=False)] == ["row-6", "row-7"]


def test_the_verb_writes_the_page_into_the_run(run: RunDir) -> None:
    done = CliRunner().invoke(app, ["report", str(run.path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert_self_contained(Page(run.report.read_text()))
