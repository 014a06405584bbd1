"""What SkyPilot itself says of a task (and the pods that it asks for) or of a volume: code 1 and why, if it refuses.

python check_sky.py task|volume FILE, with the Python that SkyPilot is installed in. Nothing is asked of any server.
"""

import json
import sys
from pathlib import Path

import sky
import yaml
from sky.provision.kubernetes.utils import check_pod_config
from sky.utils import common_utils, config_utils, schemas


def main() -> None:
    kind, file = sys.argv[1:]
    if kind == "volume":
        common_utils.validate_schema(yaml.safe_load(Path(file).read_text()), schemas.get_volume_schema(), "volume: ")
        return
    task = sky.Task.from_yaml(file)
    pod_config = yaml.safe_load(Path(file).read_text()).get("config", {}).get("kubernetes", {}).get("pod_config", {})
    pod = {"spec": {"containers": [{"name": "ray-node"}]}}  # as SkyPilot's own template begins
    config_utils.merge_k8s_configs(pod, pod_config)
    valid, why = check_pod_config(pod)
    if not valid:
        sys.exit(why)
    (resources,) = task.resources
    told = {
        "run": task.run,
        "nodes": task.num_nodes,
        "accelerators": resources.accelerators,
        "image": resources.image_id,
        "recovery": resources.job_recovery,
        "volumes": task.volumes,
        "network_tier": str(resources.network_tier.value) if resources.network_tier is not None else None,
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
