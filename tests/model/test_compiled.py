"""Compiled code outlives the process: the second one finds it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.compiled import keep_compiled_code
from tests.small import write_model

ROOT = Path(__file__).parents[2]


def test_variables_that_are_set_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # so that it is put back as it was
    monkeypatch.delenv("TRITON_CACHE_DIR")
    assert keep_compiled_code() == Path("/elsewhere")
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "seatrial" / "compile" / "triton")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert keep_compiled_code() == tmp_path / "seatrial" / "compile" / "inductor"


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        environment.pop(variable, None)

    def first_step() -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.model.first_step", str(model)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT, env=environment
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said

    cold = first_step()
    assert cold["folder"] == str(tmp_path / "seatrial" / "compile" / "inductor")
    assert cold["compiled"] > 0
    warm = first_step()
    assert warm["hits"] > 0
    assert warm["compiled"] == 0
    assert warm["loss"] == cold["loss"]
    print(f"first step: {cold['seconds']:.1f} s, then {warm['seconds']:.1f} s")  # noqa: T201
