#!/bin/bash
# A look at this node before each job, in seconds: a node that fails is drained by Slurm and the job starts elsewhere.
# In slurm.conf:
#     Prolog=/etc/slurm/prolog.d/50-seatrial.sh      (this file, executable, on every node)
#     PrologFlags=Alloc                              (before the job, not before its first step)
# A prolog that ends with another code than 0 drains its node, and slurmd says so in its log.
#
#     SEATRIAL              where the command is
#     SEATRIAL_GPUS         GPUs that the node must have; empty: as many as it shows
#     SEATRIAL_SECONDS      after which a node that gives no answer has failed; below slurm.conf's PrologEpilogTimeout
set -u
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
SEATRIAL=${SEATRIAL:-/opt/seatrial/bin/seatrial}
SEATRIAL_GPUS=${SEATRIAL_GPUS:-}
SEATRIAL_SECONDS=${SEATRIAL_SECONDS:-30}

# What is read in an instant. Not gpu.idle: other jobs may have the node's other GPUs.
CHECKS=host.cpu,host.memory,gpu.inventory,gpu.memory_health,gpu.kernel_log,fabric.nvlink,fabric.rdma,storage.space

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
# Slurm's variables speak of the job, not of this node: without them the node is looked at by itself.
env -i PATH="$PATH" HOME="$scratch" timeout --kill-after=2 "$SEATRIAL_SECONDS" \
    "$SEATRIAL" accept --budget 2s --checks "$CHECKS" ${SEATRIAL_GPUS:+--gpus "$SEATRIAL_GPUS"} --out "$scratch/out" \
    >"$scratch/log" 2>&1
code=$?

case $code in
0) exit 0 ;;
1) said="failed" ;;
3) said="could not be tested" ;;
124 | 137) said="gave no answer in $SEATRIAL_SECONDS s" ;;
*)  # Not installed, or called wrongly: that is our fault and no node's. It would drain them all.
    echo "seatrial: the look before the job did not run (code $code): $(tail -n 1 "$scratch/log")" >&2
    exit 0 ;;
esac
echo "seatrial: $(uname -n) $said:" >&2
grep -E 'FAIL|INCONCLUSIVE' "$scratch/out/acceptance.md" 2>/dev/null | grep -v '^#' >&2
exit 1
