#!/bin/bash
# llama-lora in Docker: bash llama-lora.sh NODE FIRST   on each node, from 0 to 1
# docker logs --follow llama-lora shows what it says, and docker stop llama-lora lets it save and end (75):
# the same script goes on.
set -euo pipefail
rank=${1:?which node this is, from 0 to 1}
first=${2:?the name or address of the first node, as all of them reach it}
settings="$(cd "$(dirname "$0")" && pwd)/.seatrial/settings-d6ba0dc86816.yaml"
mkdir -p "$(dirname "$settings")"
cat >"$settings" <<'END_OF_SETTINGS'
run: {dir: runs/llama}
model: {path: meta-llama/Llama-3.1-8B-Instruct}
data: {train: data/tools}
END_OF_SETTINGS
options=(
    --detach --init --name llama-lora
    --user "$(id -u):$(id -g)"  # what it writes on mounts is yours
    --stop-timeout 120  # from the request to stop to the kill
    --shm-size 64g  # NCCL and data workers share memory there; the default of 64 MB ends them
    --ulimit memlock=-1  # memory that a network card reads is pinned
    --ulimit stack=67108864
    --gpus 8
    --network host  # the fabric's own addresses
    --device /dev/infiniband
    --mount type=bind,source=/mnt/data,target=/mnt/data
    --mount "type=bind,source=$settings,target=/etc/seatrial/config.yaml,readonly"
    --workdir /mnt/data/work
    --env PET_NNODES=2 --env PET_NPROC_PER_NODE=8
    --env PET_NODE_RANK="$rank" --env PET_MASTER_ADDR="$first" --env PET_MASTER_PORT=29500
    --env SEATRIAL_NODE_NAME="$(hostname)"  # by which an acceptance names it, and jobs avoid it
    --env HOME=/tmp  # whoever starts this has no home in the image
    --env USER=seatrial  # nor a name, which compilers of kernels ask for
    --env PYTHONUNBUFFERED=1  # a process that is killed has written all that it said
    --env NCCL_DEBUG=WARN  # says why a connection failed; INFO also says what was chosen
    --env NCCL_IB_HCA=mlx5  # the InfiniBand adapters, and nothing else that looks like one
    --env 'SEATRIAL_NEEDS={"gpus":8,"mounts":[{"path":"/mnt/data","kind":"shared"}],"run_dir":"/mnt/data/runs/llama-lora"}'  # looked for before ranks start
    --env HF_HOME=/mnt/data/huggingface  # job.environment
    --env HF_TOKEN  # its value is taken from where the script is started
)
docker rm llama-lora >/dev/null 2>&1 || true  # that has ended; one that runs stays, and is named below
exec docker run --entrypoint python "${options[@]}" registry.example/seatrial:0.1 \
    -m seatrial.launch.node train /etc/seatrial/config.yaml run.grace_seconds=90 optimizer.epochs=2 run.dir=/mnt/data/runs/llama-lora
