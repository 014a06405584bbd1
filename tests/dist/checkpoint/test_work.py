"""Whatever happens while a checkpoint is made, those before it stay, and nothing half-made counts."""

import errno
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.dist.checkpoint.manifest import MANIFEST
from seatrial.dist.checkpoint.storage import Directory, await_file
from seatrial.dist.checkpoint.work import Collect, Commit, Discard, Write, collect, commit, discard, verify, write
from seatrial.errors import IntegrityError
from tests.dist.checkpoint.plain import NAMES, TOKEN, files, make, manifest, staged


@pytest.fixture
def storage(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "checkpoints")


@pytest.mark.parametrize(
    ("moment", "newest"),
    [
        ("writing", 2),
        ("before the manifest", 2),
        ("between manifest and rename", 2),
        ("after the rename", 3),
        ("collecting", 3),
    ],
)
def test_killed_at_any_moment(storage: Directory, moment: str, newest: int) -> None:
    make(storage, 1)
    make(storage, 2)
    done = subprocess.run(
        [sys.executable, "-m", "tests.dist.checkpoint.killed", str(storage.path), "3", moment], capture_output=True
    )
    assert done.returncode == -9, done.stderr.decode()[-2000:]
    committed = storage.committed()
    assert committed[0] == f"step-{newest:08d}"
    for name in committed:
        verify(storage, name)
    for leftover in storage.leftovers():
        storage.remove(leftover)
    assert {path.name for path in storage.path.iterdir()} == set(committed)
    if newest == 2:
        make(storage, 3)
        assert storage.committed()[0] == "step-00000003"


class Failing(Directory):
    """Its second file and those after it cannot be written, in whatever thread."""

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path)
        self.number = number
        self.threads: set[str] = set()

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        with super().create(name) as stream:
            if not name.endswith(NAMES[0]):
                self.threads.add(threading.current_thread().name)
                raise OSError(self.number, "injected", name)
            yield stream


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_an_error_in_any_writing_thread_is_raised(tmp_path: Path, number: int) -> None:
    storage = Failing(tmp_path, number)
    with pytest.raises(OSError, match="injected") as raised:
        write(storage, Write("step-00000001.tmp-0", files()), staged(1), lambda: None)
    assert raised.value.errno == number
    assert threading.main_thread().name not in storage.threads
    assert storage.committed() == []
    discard(storage, Discard("step-00000001.tmp-0"))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_too_small_is_not_filled(storage: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "free_bytes", lambda: 100)
    with pytest.raises(OSError, match="15018 bytes are needed, 100 are free") as raised:
        write(storage, Write("step-00000001.tmp-0", files()), staged(1), lambda: None)
    assert raised.value.errno == errno.ENOSPC
    assert not storage.path.exists()


def test_the_kernel_s_own_refusal_is_raised(tmp_path: Path) -> None:
    """A limit on the size of files, which nobody but the kernel knows of."""
    script = (
        "import resource, sys; from pathlib import Path; from tests.dist.checkpoint.plain import make\n"
        "from seatrial.dist.checkpoint.storage import Directory\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); make(Directory(Path(sys.argv[1])), 1)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert Directory(tmp_path).committed() == []


def test_a_rank_whose_files_are_elsewhere_is_found(storage: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes with a local disk each, under the same path."""
    temporary, final = storage.names_of(1, TOKEN)
    written = write(storage, Write(temporary, files()), staged(1), lambda: None)
    (storage.path / temporary / NAMES[2]).unlink()
    monkeypatch.setattr("seatrial.dist.checkpoint.work.await_file", lambda *a: await_file(*a, seconds=0.1))
    with pytest.raises(IntegrityError, match=r"rank-00001-0\.safetensors: missing; is checkpoint\.dir the same"):
        commit(storage, Commit(temporary, manifest(final, 1, written)), lambda: None)
    assert storage.committed() == []


@settings(deadline=None, max_examples=100)  # files are synced
@given(data=st.data())
def test_no_damaged_byte_passes(data: st.DataObject) -> None:
    """Any byte of any file, flipped in any way, lost or doubled."""
    with tempfile.TemporaryDirectory() as folder:
        storage = Directory(Path(folder))
        name = make(storage, 1)
        verify(storage, name)
        paths = sorted(path for path in (storage.path / name).rglob("*") if path.is_file())
        path = data.draw(st.sampled_from(paths))
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "truncate", "append", "hole", "delete"])):
            case "flip":
                content[at] ^= data.draw(st.integers(1, 255))
            case "truncate":
                del content[at:]
            case "append":
                content.append(0)
            case "hole":
                before = bytes(content)
                content[at : at + 512] = bytes(min(512, len(content) - at))
                if content == before:
                    return
            case "delete":
                path.unlink()
        if path.exists():
            path.write_bytes(content)
        with pytest.raises(IntegrityError, match=name):
            verify(storage, name)


@settings(deadline=None, max_examples=25)
@given(damaged=st.sets(st.integers(1, 6)), keep=st.integers(2, 4))
def test_collecting_never_takes_the_last_that_is_sound(damaged: set[int], keep: int) -> None:
    """The newest, step 6, was just written and hashed."""
    with tempfile.TemporaryDirectory() as folder:
        storage = Directory(Path(folder))
        for step in range(1, 7):
            make(storage, step)
        for step in damaged - {6}:
            path = storage.path / f"step-{step:08d}" / NAMES[1]
            path.write_bytes(path.read_bytes()[:-1] + b"!")
        collect(storage, Collect(keep), lambda: None)
        sound = [step for step in range(6, 0, -1) if step == 6 or step not in damaged]
        kept = [int(name.removeprefix("step-")) for name in storage.committed()]
        assert kept[: min(keep, len(sound))] == sound[:keep]
        assert set(kept) <= set(sound[:keep])
        assert all(int(name[5:13]) in damaged for name in storage.corrupt())


def test_nothing_is_read_when_there_is_nothing_to_delete(storage: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    make(storage, 1)
    make(storage, 2)
    monkeypatch.setattr(storage, "open", lambda name: pytest.fail(f"{name} was read"))
    assert collect(storage, Collect(2), lambda: None).removed == ()


def test_a_manifest_of_another_checkpoint_is_no_manifest(storage: Directory) -> None:
    one, two = make(storage, 1), make(storage, 2)
    (storage.path / two / MANIFEST).write_bytes((storage.path / one / MANIFEST).read_bytes())
    with pytest.raises(IntegrityError, match="its manifest is that of step-00000001"):
        verify(storage, two)
