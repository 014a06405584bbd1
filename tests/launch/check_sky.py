"""What SkyPilot itself says of a task or volume file: exit code 1 and its words where it refuses one.

python check_sky.py task|volume FILE, with the Python that SkyPilot is installed in. Nothing is asked of any server.
"""

import json
import sys
from pathlib import Path

import sky
import yaml
from sky.utils import common_utils, schemas


def main() -> None:
    kind, file = sys.argv[1:]
    if kind == "volume":
        common_utils.validate_schema(yaml.safe_load(Path(file).read_text()), schemas.get_volume_schema(), "volume: ")
        return
    task = sky.Task.from_yaml(file)
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
