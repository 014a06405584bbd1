"""One job file, six targets: Slurm, SkyPilot, Kubernetes, Kubeflow (two kinds), bare torchrun and Docker."""
