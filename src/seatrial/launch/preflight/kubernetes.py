"""What a Kubernetes says of a job before it is submitted: permission, quota, claims, secret, nodes, its own dry run."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.launch.job import Job
from seatrial.launch.kubectl import kubectl
from seatrial.launch.preflight.answer import last_line
from seatrial.launch.preflight.finding import Finding, doubtful, failed, passed, skipped
from seatrial.launch.volumes import claim_name
from seatrial.shell import Output

MADE = {
    "kubernetes": ("jobs.batch", "services"),
    "pytorchjob": ("pytorchjobs.kubeflow.org",),
    "trainjob": ("trainjobs.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org"),
}
"""What each target makes; settings travel in a ConfigMap on all of them."""
GPU = "nvidia.com/gpu"
_CREATE = "create "
_NAMES_ONLY = '{{range $name, $value := .data}}{{$name}}{{"\\n"}}{{end}}'  # values never leave kubectl
_UNITS = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)
}


def questions(job: Job, target: str) -> dict[str, tuple[str, ...]]:
    """What is asked, by a name for each answer. The first says whether there is anybody to ask."""
    settings = job.kubernetes
    asked: dict[str, tuple[str, ...]] = {
        "server": ("version", "--output=json"),
        **{f"{_CREATE}{kind}": ("auth", "can-i", "create", kind) for kind in _made(job, target)},
        "quota": ("get", "resourcequotas", "--output=json"),
        "nodes": ("get", "nodes", "--output=json"),
    }
    if any(mount.kind != "scratch" for mount in job.mounts):
        asked["claims"] = ("get", "persistentvolumeclaims", "--output=json")
        asked["classes"] = ("get", "storageclasses", "--output=json")
    if job.secrets:
        asked["secret"] = ("get", "secret", settings.secret, f"--output=go-template={_NAMES_ONLY}")
    if settings.image_pull_secret is not None:
        asked["image pull secret"] = ("get", "secret", settings.image_pull_secret, "--output=name")
    if settings.service_account is not None:
        asked["service account"] = ("get", "serviceaccount", settings.service_account, "--output=name")
    if settings.queue is not None:
        asked["queue"] = ("get", "localqueues.kueue.x-k8s.io", settings.queue, "--output=name")
    return {name: (*kubectl(job, *words), "--request-timeout=20s") for name, words in asked.items()}


def _made(job: Job, target: str) -> tuple[str, ...]:
    config = ("configmaps",) if job.config is not None else ()
    claims = any(mount.kind != "scratch" and mount.source is None for mount in job.mounts)
    return (*MADE[target], *config, *(("persistentvolumeclaims",) if claims else ()))


def dry_run(job: Job) -> tuple[str, ...]:
    """Reads manifests from stdin: the server checks every field, and admission and quota speak, but nothing is kept."""
    return tuple(kubectl(job, "create", "--dry-run=server", "--filename=-", "--request-timeout=20s"))


def judge_server(answer: Output) -> Finding:
    if answer.ok:
        version = json.loads(answer.stdout).get("serverVersion", {}).get("gitVersion", "of no known version")
        return passed("kubernetes", f"answers, {version}")
    said = last_line(answer)
    if answer.returncode is None:
        return failed("kubernetes", said, "install kubectl, or render with --dry-run")
    if "does not exist" in said:
        return failed("kubernetes", said, "`kubectl config get-contexts` lists them; set job.kubernetes.context")
    remedy = "`kubectl cluster-info` must answer: check the context (`kubectl config current-context`) and the login"
    return failed("kubernetes", said, remedy)


def judge(job: Job, answers: Mapping[str, Output]) -> Iterator[Finding]:
    """Of all :func:`questions` but the first."""
    for name, answer in answers.items():
        if name.startswith(_CREATE):
            yield judge_permission(job, name.removeprefix(_CREATE), answer)
    yield from judge_quota(job, answers["quota"])
    yield judge_nodes(job, answers["nodes"])
    if "claims" in answers:
        yield from judge_claims(job, answers["claims"], answers["classes"])
    if "secret" in answers:
        yield judge_secret(job, answers["secret"])
    for name in ("image pull secret", "service account", "queue"):
        if name in answers:
            yield _judge_presence(name, answers[name])


def judge_permission(job: Job, kind: str, answer: Output) -> Finding:
    """``kind``: what is to be created, as kubectl names it."""
    what, namespace = f"create {kind}", job.kubernetes.namespace
    if "doesn't have a resource type" in answer.stderr:  # and 'yes' all the same
        remedy = "have Kubeflow's operator installed, or launch on kubernetes, which needs none"
        return failed(what, "the cluster does not know this kind", remedy)
    if answer.stdout.strip().startswith("yes"):
        return passed(what, f"allowed in namespace {namespace}")
    remedy = f"ask for a role that may, or set job.kubernetes.namespace (`kubectl auth can-i --list -n {namespace}`)"
    return failed(what, f"not allowed in namespace {namespace}", remedy)


def judge_quota(job: Job, answer: Output) -> Iterator[Finding]:
    """Every quota of the namespace, each of the resources that the job takes."""
    if not answer.ok:
        yield _unasked("quota", answer)
        return
    wanted = _wanted(job)
    for quota in json.loads(answer.stdout)["items"]:
        what = f"quota {quota['metadata']['name']}"
        status = quota.get("status", {})
        hard, used = status.get("hard", {}), status.get("used", {})
        short = [
            f"{name}: {wanted[name]:g} wanted, {left:g} of {hard[name]} left"
            for name in wanted.keys() & hard.keys()
            if wanted[name] > (left := quantity(hard[name]) - quantity(used.get(name, "0")))
        ]
        if short:
            describe = f"`kubectl -n {job.kubernetes.namespace} describe resourcequota {quota['metadata']['name']}`"
            remedy = f"wait for other jobs, lower job.nodes, or ask for more; {describe}"
            yield failed(what, "; ".join(sorted(short)), remedy)
        else:
            yield passed(what, "has room for the job")


def _wanted(job: Job) -> dict[str, float]:
    wanted = {"pods": float(job.nodes), "count/pods": float(job.nodes)}
    if job.gpus_per_node:
        wanted |= {f"{prefix}{GPU}": float(job.nodes * job.gpus_per_node) for prefix in ("requests.", "limits.", "")}
    if job.cpus_per_node is not None:
        wanted |= dict.fromkeys(("cpu", "requests.cpu"), float(job.nodes * job.cpus_per_node))
    if job.memory_gib is not None:
        wanted |= dict.fromkeys(("memory", "requests.memory"), job.nodes * job.memory_gib * 1024.0**3)
    return wanted


def quantity(text: str) -> float:
    """A Kubernetes quantity: 2, 500m, 64Gi, 1e3 (its API reference, 'resource.Quantity')."""
    number, unit = re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([A-Za-z]*)", text.strip()).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS[unit]


def judge_nodes(job: Job, answer: Output) -> Finding:
    """Whether enough nodes are large enough, whatever runs on them now."""
    if not answer.ok:
        return _unasked("nodes", answer)
    nodes = json.loads(answer.stdout)["items"]
    fitting = [node for node in nodes if _fits(job, node["status"].get("allocatable", {}))]
    ready = [node for node in fitting if _is_ready(node)]
    size = f"{job.gpus_per_node} GPUs" if job.gpus_per_node else f"{job.cpus_per_node or 1} CPUs"
    if len(fitting) < job.nodes:
        reason = f"{len(fitting)} of {len(nodes)} nodes have {size} to give, job.nodes is {job.nodes}"
        if not fitting and job.gpus_per_node and not any(_count(node, GPU) for node in nodes):
            return failed("nodes", f"no node offers {GPU}", "install NVIDIA's GPU operator, or add GPU nodes")
        remedy = "lower job.nodes or what each asks for, or let the cluster scale up first (`kubectl get nodes`)"
        return failed("nodes", reason, remedy)
    if len(ready) < job.nodes:
        reason = f"{len(ready)} of {len(fitting)} large enough nodes are ready and not cordoned"
        return doubtful("nodes", f"{reason}: the job will wait", "`kubectl describe node` says why")
    return passed("nodes", f"{len(ready)} are ready that have {size} each")


def _fits(job: Job, allocatable: Mapping[str, str]) -> bool:
    return (
        quantity(allocatable.get(GPU, "0")) >= job.gpus_per_node
        and quantity(allocatable.get("cpu", "0")) >= (job.cpus_per_node or 0)
        and quantity(allocatable.get("memory", "0")) >= (job.memory_gib or 0) * 1024.0**3
    )


def _count(node: Mapping[str, Any], resource: str) -> float:
    return quantity(node["status"].get("allocatable", {}).get(resource, "0"))


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and not node.get("spec", {}).get("unschedulable", False)


def judge_claims(job: Job, claims: Output, classes: Output) -> Iterator[Finding]:
    """Each mount: the claim that is named, or the storage class of the one that will be made."""
    found = {one["metadata"]["name"]: one for one in json.loads(claims.stdout)["items"]} if claims.ok else None
    known = json.loads(classes.stdout)["items"] if classes.ok else None
    for mount in job.mounts:
        what = f"mount {mount.path}"
        if mount.kind == "scratch":
            continue
        name = mount.source or claim_name(mount)
        if found is None:
            yield _unasked(what, claims)
        elif mount.source is not None or name in found:
            yield _judge_claim(what, name, mount.kind, found)
        else:
            yield _unasked(what, classes) if known is None else _judge_class(what, mount.storage_class, known)


def _judge_claim(what: str, name: str, kind: str, found: Mapping[str, Any]) -> Finding:
    if name not in found:
        have = f"there are {', '.join(sorted(found))}" if found else "there is none in this namespace"
        return failed(what, f"no claim {name}: {have}", "correct the mount's source, or leave it out to have one made")
    claim = found[name]
    phase, modes = claim.get("status", {}).get("phase", "Unknown"), claim["spec"].get("accessModes", [])
    if kind == "shared" and "ReadWriteMany" not in modes:
        remedy = "use a claim of a shared file system, or kind: disk where one node is enough"
        return failed(what, f"claim {name} is {', '.join(modes)}: one node at a time can write it", remedy)
    if phase == "Pending":
        reason = f"claim {name} is not bound yet; it may be waiting for its first pod"
        return doubtful(what, reason, f"`kubectl describe pvc {name}` says what it waits for")
    if phase != "Bound":
        return failed(what, f"claim {name} is {phase}", f"`kubectl describe pvc {name}` says why")
    size = claim.get("status", {}).get("capacity", {}).get("storage", "of unknown size")
    return passed(what, f"claim {name} is bound, {size}")


def _judge_class(what: str, name: str | None, known: list[Mapping[str, Any]]) -> Finding:
    mark = "storageclass.kubernetes.io/is-default-class"
    names = sorted(one["metadata"]["name"] for one in known)
    defaults = [one for one in known if one["metadata"].get("annotations", {}).get(mark) == "true"]
    if name is None and not defaults:
        return failed(what, "no storage class is the default", f"set its storage_class to one of {', '.join(names)}")
    if name is not None and name not in names:
        return failed(what, f"no storage class {name}", f"set its storage_class to one of {', '.join(names)}")
    return passed(what, f"a claim of class {name or defaults[0]['metadata']['name']} will be made")


def judge_secret(job: Job, answer: Output) -> Finding:
    """``answer``: names of the keys alone."""
    name, namespace = job.kubernetes.secret, job.kubernetes.namespace
    what = f"secret {name}"
    literals = " ".join(f'--from-literal={key}="${key}"' for key in job.secrets)
    create = f"`kubectl -n {namespace} create secret generic {name} {literals}`"
    if not answer.ok:
        return failed(what, "there is none", create) if "NotFound" in answer.stderr else _unasked(what, answer)
    missing = [key for key in job.secrets if key not in answer.stdout.split()]
    if missing:
        return failed(what, f"has no {', '.join(missing)}", f"delete it and {create}")
    return passed(what, f"has {', '.join(job.secrets)}")


def _judge_presence(what: str, answer: Output) -> Finding:
    if answer.ok:
        return passed(what, f"{answer.stdout.strip()} is there")
    if "NotFound" in answer.stderr or "doesn't have a resource type" in answer.stderr:
        words = answer.argv[answer.argv.index("get") + 1]
        return failed(what, last_line(answer), f"`kubectl get {words} -A` lists what there is; correct job.kubernetes")
    return _unasked(what, answer)


def judge_dry_run(answer: Output) -> Finding:
    if answer.ok:
        return passed("kubectl create --dry-run=server", f"{len(answer.stdout.splitlines())} objects are accepted")
    said = last_line(answer)
    remedy = "`kubectl explain` knows the fields"
    if "already exists" in said:
        remedy = "a job of this name is there: stop it, or choose another job.name"
    elif "exceeded quota" in said or "forbidden" in said:
        remedy = "`kubectl describe resourcequota` and `kubectl auth can-i --list` say what is allowed"
    return failed("kubectl create --dry-run=server", said, remedy)


def _unasked(what: str, answer: Output) -> Finding:
    return skipped(what, f"cannot be asked: {last_line(answer)}")
