#!/bin/bash
# llama-lora, by hand: on each of its 1 nodes, one of these lines, within ten minutes.
#     bash llama-lora.sh 0 FIRST    # FIRST: its own name or address
# Exit code 75: it saved when it was asked to stop, and the same lines go on.
set -euo pipefail
export PET_NODE_RANK=${1:?which node this is, from 0 to 0}
export PET_MASTER_ADDR=${2:?the name or address of the first node, as all of them reach it}
export PET_MASTER_PORT=${3:-29500}
export PET_NNODES=1  # nodes, or the least and the most of them
export PET_NPROC_PER_NODE=8  # of each node
export PYTHONUNBUFFERED=1  # a process that is killed has written all that it said
export NCCL_DEBUG=WARN  # says why a connection failed; INFO also says what was chosen
export NCCL_IB_HCA=mlx5  # the InfiniBand adapters, and nothing else that looks like one
export SEATRIAL_NEEDS='{"gpus":8,"mounts":[{"path":"/mnt/data","kind":"shared"}],"run_dir":"/mnt/data/runs/llama-lora"}'  # looked for before ranks start
export HF_HOME=/mnt/data/huggingface  # job.environment

cd /mnt/data/work
mkdir -p .seatrial
cat >".seatrial/settings-$$.tmp" <<'END_OF_SETTINGS'
run: {dir: runs/llama}
model: {path: meta-llama/Llama-3.1-8B-Instruct}
data: {train: data/tools}
END_OF_SETTINGS
mv ".seatrial/settings-$$.tmp" .seatrial/settings-d6ba0dc86816.yaml
exec /mnt/data/venv/bin/python -m seatrial.launch.node train .seatrial/settings-d6ba0dc86816.yaml run.grace_seconds=90 optimizer.epochs=2 run.dir=/mnt/data/runs/llama-lora
