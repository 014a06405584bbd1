"""Rendered manifests as Kubernetes reads them, and strict judges of their form, down to unknown and mistyped fields."""

import copy
from typing import Any

import kubernetes.client.models as core
import kubernetes_validate
import yaml
from kubeflow.training import models as training
from kubeflow_trainer_api.models import TrainerV1alpha1TrainingRuntime, TrainerV1alpha1TrainJob
from kubernetes.client import ApiClient, Configuration

from seatrial.launch.job import Rendered

Object = dict[str, Any]

OLDEST, NEWEST = "1.31", "1.37"


def objects(rendered: Rendered) -> list[Object]:
    """Read by another parser than wrote them, of YAML 1.1, as Kubernetes' own is."""
    return [each for _, text in rendered.files for each in yaml.safe_load_all(text)]


def of_kind(kind: str, rendered: Rendered) -> Object:
    (found,) = (each for each in objects(rendered) if each["kind"] == kind)
    return found


def complaints(manifest: Object) -> list[str]:
    """Empty where the manifest is well formed."""
    try:
        match manifest["kind"]:
            case "PyTorchJob":
                return _differences(manifest, _through_training_operator(manifest))
            case "TrainJob":
                return _differences(manifest, TrainerV1alpha1TrainJob.from_dict(copy.deepcopy(manifest)).to_dict())
            case "TrainingRuntime":
                read = TrainerV1alpha1TrainingRuntime.from_dict(copy.deepcopy(manifest))
                return _differences(manifest, read.to_dict())
            case _:
                for version in (OLDEST, NEWEST):
                    kubernetes_validate.validate(manifest, version, strict=True)
                return []
    except (TypeError, ValueError, kubernetes_validate.ValidationError) as error:
        return [str(error)]


def _through_training_operator(manifest: Object) -> Any:
    """Its models read and write only what they know."""
    for name in dir(training):  # the client looks for models in its own package alone
        if name[0].isupper() and not hasattr(core, name):
            setattr(core, name, getattr(training, name))
    client = ApiClient(Configuration())
    model = client._ApiClient__deserialize(copy.deepcopy(manifest), training.KubeflowOrgV1PyTorchJob)
    return client.sanitize_for_serialization(model)


def _differences(before: Any, after: Any, where: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [each for key in keys for each in _differences(before.get(key), after.get(key), f"{where}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [each for at, (one, other) in pairs for each in _differences(one, other, f"{where}[{at}]")]
    return [] if before == after else [f"{where}: {before!r} is read as {after!r}"]
