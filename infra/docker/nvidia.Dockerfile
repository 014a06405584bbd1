# seatrial on NVIDIA's PyTorch image: their build of torch, NCCL and CUDA, for clusters that are supported with it.
#
#   docker build -f infra/docker/nvidia.Dockerfile -t seatrial:0.1-nvidia .
#   docker run --rm --gpus all --shm-size=8g seatrial:0.1-nvidia self-check
#
# The image brings torch; another tag is as good as long as its torch is as new as pyproject.toml asks for.
ARG BASE=nvcr.io/nvidia/pytorch:26.06-py3

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY infra/docker/other_requirements.py ./
# Their torch has a version of its own, which pip takes for older than the release that it is built from: so torch is
# left out of what is asked for, and everything else keeps to the image's own constraints (PIP_CONSTRAINT).
RUN pip install --no-cache-dir --no-deps . \
    && python3 other_requirements.py torch > requirements.txt \
    && pip install --no-cache-dir --requirement requirements.txt \
    && rm -rf /build/*
RUN useradd --create-home --uid 10001 seatrial
COPY --chmod=755 infra/docker/self-check /usr/local/bin/self-check
ENV PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root.
USER 10001
WORKDIR /home/seatrial
ENTRYPOINT ["tini", "-s", "--"]
CMD ["seatrial", "--help"]
