"""The GitHub workflow, read strictly: what it may do, what it runs, and that nothing in it can be moved under us."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import seatrial

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".github" / "workflows" / "ci.yml"
TEXT = FILE.read_text()
WORKFLOW: dict[str, Any] = YAML(typ="safe").load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]

# What GitHub's workflow syntax knows of each, as far as we use it: a misspelt key is ignored or fails far from here.
OF_A_WORKFLOW = {"name", "on", "permissions", "concurrency", "env", "jobs"}
OF_A_JOB = {"runs-on", "timeout-minutes", "strategy", "steps", "needs", "permissions", "if"}
OF_A_STEP = {"name", "if", "uses", "with", "run", "env"}

every_job = pytest.mark.parametrize("job", JOBS)


def test_keys_are_those_that_github_knows() -> None:
    assert WORKFLOW.keys() <= OF_A_WORKFLOW  # YAML 1.2, in which `on` is no truth value
    for name, job in JOBS.items():
        assert job.keys() <= OF_A_JOB, name
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys(), name
    for name, step in STEPS:
        assert step.keys() <= OF_A_STEP, (name, step)
        assert ("uses" in step) != ("run" in step), (name, step)


def test_a_step_uses_one_commit_that_a_person_can_look_up() -> None:
    used = [line.strip() for line in TEXT.splitlines() if "uses:" in line]
    assert len(used) == sum("uses" in step for _, step in STEPS)
    for line in used:
        assert re.fullmatch(r"- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    pins = {tuple(line.split("@")) for line in used}
    assert len(pins) == len({action for action, _ in pins}), "an action has two pins"


def test_nothing_may_be_written_but_where_it_is_said() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert more == {"image": {"contents": "read", "packages": "write"}, "release": {"contents": "write"}}
    for _, step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_no_code_of_a_stranger_sees_a_secret() -> None:
    assert set(WORKFLOW["on"]) == {"push", "pull_request"}  # pull_request_target would run it with our rights
    assert re.findall(r"secrets\.(\w+)", TEXT) == ["GITHUB_TOKEN"]


def test_no_text_of_a_stranger_becomes_a_command() -> None:
    """Expressions are pasted into scripts before the shell reads them: names of branches could be commands."""
    for name, step in STEPS:
        assert "${{" not in step.get("run", ""), (name, step)


def test_only_what_is_green_and_ours_is_pushed() -> None:
    assert set(JOBS["image"]["needs"]) == {"lint", "test", "launchers", "demo"}
    outward = [
        step for name, step in STEPS if name == "image" and ("push" in step.get("run", "") or "login" in str(step))
    ]
    assert len(outward) == 2
    assert all(step["if"] == "github.event_name == 'push'" for step in outward)
    names = [step.get("run", "") for _, step in STEPS]
    checked = next(at for at, run in enumerate(names) if "self-check" in run)
    pushed = next(at for at, run in enumerate(names) if "docker push" in run)
    assert checked < pushed


def test_a_release_is_of_a_tag_that_is_the_version() -> None:
    release = JOBS["release"]
    assert release["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert release["needs"] == ["image"]
    assert WORKFLOW["on"]["push"]["tags"] == ["v*"]
    (guard,) = [step["run"] for step in release["steps"] if "__version__" in step.get("run", "")]
    written = f'__version__ = "{seatrial.__version__}"'
    line = guard.split('"', 1)[1].rsplit('" ', 1)[0].replace('\\"', '"').replace("${GITHUB_REF_NAME#v}", "{}")
    assert line.format(seatrial.__version__) == written
    assert written in (ROOT / "src" / "seatrial" / "__init__.py").read_text().splitlines()


@every_job
def test_jobs_end_and_need_jobs_there_are(job: str) -> None:
    assert 0 < JOBS[job]["timeout-minutes"] <= 60
    assert set(JOBS[job].get("needs", [])) <= JOBS.keys() - {job}


def test_what_is_run_is_there() -> None:
    targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for _, step in STEPS:
        for target in re.findall(r"\bmake (\w+)", step.get("run", "")):
            assert target in targets
    (file,) = {step["with"]["file"] for _, step in STEPS if "file" in step.get("with", {})}
    assert (ROOT / file).is_file()
    (folders,) = re.findall(r"ARGS='([^']+)'", TEXT)
    assert all((ROOT / folder).is_dir() for folder in folders.split())


def test_ci_installs_what_the_workflow_installs() -> None:
    """The two ways to run the launchers' tests must not drift apart."""
    (here,) = re.findall(r"for package in ([\w. -]+); do", (ROOT / ".ci" / "run").read_text())
    (there,) = re.findall(r"--no-install-recommends ([\w. -]+)$", TEXT, re.MULTILINE)
    assert here.split() == there.split()
    pins = [re.findall(r"skypilot\[\w+\]==[\d.]+", text) for text in ((ROOT / ".ci" / "run").read_text(), TEXT)]
    assert pins[0] == pins[1] != []
