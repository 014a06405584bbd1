"""The image of a job: whether Docker has it, or its registry gives it to us."""

from seatrial.launch.preflight.answer import last_line
from seatrial.launch.preflight.finding import Finding, doubtful, failed, passed, skipped
from seatrial.shell import Output

SERVER = ("docker", "version", "--format={{.Server.Version}}")


def local_image(image: str) -> tuple[str, ...]:
    return ("docker", "image", "inspect", "--format={{.Id}}", image)


def remote_image(image: str) -> tuple[str, ...]:
    """Asks the registry for the manifest alone, with the login that Docker has. Needs no daemon."""
    return ("docker", "manifest", "inspect", image)


def judge_server(answer: Output) -> Finding:
    if answer.ok:
        return passed("docker", f"answers, {answer.stdout.strip()}")
    remedy = "start its daemon (`systemctl start docker`), or let this user talk to it (group docker)"
    return failed("docker", last_line(answer), "install Docker" if answer.returncode is None else remedy)


def judge_image(image: str, local: Output | None, remote: Output) -> Finding:
    """``local`` None: what this machine has does not matter, since the nodes pull it."""
    what = f"image {image}"
    if local is not None and local.ok:
        return passed(what, f"is here, {local.stdout.strip()}")
    if remote.ok:
        return passed(what, "its registry has it")
    if remote.returncode is None:
        return skipped(what, f"cannot be asked: {last_line(remote)}", "a wrong name shows as ErrImagePull")
    said = last_line(remote)
    if "manifest unknown" in said or "no such manifest" in said:
        return failed(what, "its registry has no such tag", "push it, or correct job.image")
    if "denied" in said or "unauthorized" in said:
        remedy = "`docker login` here; on Kubernetes set job.kubernetes.image_pull_secret"
        return (doubtful if local is None else failed)(what, f"its registry refuses us: {said}", remedy)
    return skipped(what, f"cannot be asked: {said}", "a wrong name shows as ErrImagePull")


def judge_image_file(image: str, is_there: bool) -> Finding:
    """An image that enroot made, which Slurm takes by its path."""
    what = f"image {image}"
    if is_there:
        return passed(what, "is there")
    return failed(what, "no such file", f"`enroot import --output {image} docker://NAME:TAG` makes it")
