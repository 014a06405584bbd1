# From a bare machine: Python 3.11 or newer, pip and make are enough. Every target sets up what it needs, once, in .venv.
#
#   make demo       the whole voyage on this machine, in minutes
#   make test       the test suite
#   make check      style, format, types, floors
#   make test-gpu   the tests that need an NVIDIA GPU
#
# ARGS are passed on:    make demo ARGS=--fresh       make test ARGS='-k pack'
# PYTHONS are tried:     make test PYTHONS=python3.12

PYTHONS := python3.13 python3.12 python3.11 python3
PYTHON := .venv/bin/python
READY := .venv/.ready
# The CPU build is called VERSION+cpu; both meet the pin.
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

.PHONY: demo test check test-gpu
.DELETE_ON_ERROR:

demo: $(READY)
	$(PYTHON) -m seatrial demo $(ARGS)

# One thread for each of two workers: with two each, four threads spin on two cores. ARGS may leave one of the two runs
# without a test (pytest's code 5), but not both.
test: $(READY)
	@export OMP_NUM_THREADS=1; \
	$(PYTHON) -m pytest -n 2 -m "not gpu and not multi_gpu and not alone" $(ARGS); beside=$$?; \
	[ $$beside = 0 ] || [ $$beside = 5 ] || exit $$beside; \
	$(PYTHON) -m pytest -m alone $(ARGS); alone=$$?; \
	[ $$alone = 0 ] || { [ $$alone = 5 ] && [ $$beside = 0 ]; }

check: $(READY)
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest -q tests/house/test_floors.py

test-gpu: $(READY)
	@nvidia-smi -L || { echo "error: make test-gpu needs an NVIDIA GPU and its driver" >&2; exit 1; }
	$(PYTHON) -m pytest -m "gpu or multi_gpu" $(ARGS)

$(READY): pyproject.toml constraints.txt | .venv/bin/pip
	@echo "installing into .venv: minutes, once"
	@$(HAS_TORCH) || { $(INSTALL_TORCH); }
	@$(PYTHON) -m pip install -qq --no-build-isolation -c constraints.txt -e '.[demo,test,check]'
	@touch $@

# A shim that does not run is passed over. Some systems ship Python without ensurepip: their own pip then fills .venv.
.venv/bin/pip:
	@for python in $(PYTHONS); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		echo "$$("$$python" --version): making .venv"; \
		"$$python" -c 'import ensurepip' 2>/dev/null && exec "$$python" -m venv --clear .venv; \
		"$$python" -m venv --clear --without-pip .venv && exec "$$python" -m pip --python .venv install -q pip; \
		exit 1; \
	done; \
	echo "error: seatrial needs Python 3.11 or newer, and none of these is: $(PYTHONS)" >&2; \
	echo "install one, or name it: make PYTHONS=/path/to/python TARGET" >&2; \
	exit 1

HAS_TORCH = $(PYTHON) -c 'import importlib.metadata as m, sys; \
	sys.exit(m.version("torch").partition("+")[0] != "$(TORCH)")' 2>/dev/null

# Without a GPU the CPU build is taken, never the gigabytes of CUDA: from wherever pip looks, or else through uv, which
# knows PyTorch's own index and says what fails. torch comes first: what is installed after it leaves it alone.
define INSTALL_TORCH
if nvidia-smi -L >/dev/null 2>&1 || [ "$$(uname)" = Darwin ]; then \
	$(PYTHON) -m pip install -qq -c constraints.txt torch==$(TORCH); \
elif ! $(PYTHON) -m pip install -qqq -c constraints.txt torch==$(TORCH)+cpu; then \
	echo "pip finds no CPU build of torch $(TORCH): asking PyTorch's own index, through uv"; \
	$(PYTHON) -m pip install -qq -c constraints.txt uv && \
	.venv/bin/uv pip install -q --python $(PYTHON) -c constraints.txt --torch-backend=cpu torch==$(TORCH) || { \
		echo "error: no CPU build of torch $(TORCH) for this Python can be had here; delete .venv and try another" >&2; \
		echo "Python with PYTHONS=..., or take the CUDA build: $(PYTHON) -m pip install torch==$(TORCH)" >&2; \
		exit 1; \
	}; \
fi
endef
