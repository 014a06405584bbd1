"""One promise, kept with and without a rename: a committed name is a whole checkpoint."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.dist.checkpoint.manifest import MANIFEST
from seatrial.dist.checkpoint.storage import Directory, ObjectStorage, Storage, await_file, open_storage
from seatrial.dist.checkpoint.work import Collect, collect, verify
from seatrial.errors import IntegrityError, UsageError
from tests.dist.checkpoint.plain import NAMES, make


@pytest.fixture(params=["directory", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "directory":
        yield open_storage(str(tmp_path / "checkpoints"))
    else:
        yield open_storage(f"memory://{uuid.uuid4()}/checkpoints")


def test_a_place_that_is_not_there_yet_holds_nothing(storage: Storage) -> None:
    assert storage.committed() == storage.leftovers() == storage.corrupt() == []


def test_made_found_and_verified(storage: Storage) -> None:
    one, two = make(storage, 1), make(storage, 2)
    assert storage.committed() == [two, one]
    assert verify(storage, two).step == 2


def test_without_its_manifest_it_does_not_count(storage: Storage) -> None:
    name = make(storage, 1)
    temporary, _ = storage.names_of(2, "0badc0de")
    with storage.create(f"{temporary}/{NAMES[0]}") as stream:
        stream.write(b"half")
    assert storage.committed() == [name]
    assert storage.leftovers() == [temporary]
    storage.remove(temporary)
    assert storage.leftovers() == []


def test_set_aside_stays_but_does_not_count(storage: Storage) -> None:
    one, two = make(storage, 1), make(storage, 2)
    storage.set_aside(two, "corrupt", "a bit is flipped")
    assert storage.committed() == [one]
    (aside,) = storage.corrupt()
    assert two in aside
    storage.set_aside(one, "rolled-back", "training went back")
    assert storage.committed() == []
    assert len(storage.corrupt()) == 1
    assert storage.leftovers() == []


def test_the_oldest_goes(storage: Storage) -> None:
    names = [make(storage, step) for step in (1, 2, 3)]
    assert collect(storage, Collect(2), lambda: None).removed == (names[0],)
    assert storage.committed() == names[:0:-1]


def test_a_lost_file_is_found(storage: Storage) -> None:
    one = make(storage, 1)
    two = make(storage, 2)
    make(storage, 3)
    if isinstance(storage, Directory):
        (storage.path / two / NAMES[0]).unlink()
    else:
        assert isinstance(storage, ObjectStorage)
        storage._files.rm_file(f"{storage._root}/{two}/{NAMES[0]}")
    with pytest.raises(IntegrityError, match=f"{two}/{NAMES[0]}: missing"):
        verify(storage, two)
    done = collect(storage, Collect(2), lambda: None)
    assert [name for name, _ in done.corrupt] == [two]
    assert one in storage.committed()


def test_the_same_name_is_set_aside_twice(tmp_path: Path) -> None:
    storage = Directory(tmp_path)
    for _ in range(2):
        storage.set_aside(make(storage, 1), "corrupt", "damaged")
    assert storage.corrupt() == ["step-00000001.corrupt", "step-00000001.corrupt-1"]


def test_a_file_is_waited_for_by_name(tmp_path: Path) -> None:
    storage = Directory(tmp_path)
    name = make(storage, 1)
    assert await_file(storage, f"{name}/{MANIFEST}", seconds=0) > 0
    with pytest.raises(IntegrityError, match=r"nothing: missing"):
        await_file(storage, "nothing", seconds=0.01)
    with pytest.raises(IntegrityError, match=r"5006 bytes, expected 7"):
        await_file(storage, f"{name}/{NAMES[0]}", 7, seconds=0.01)


def test_a_url_that_nobody_knows_is_the_user_s_to_mend() -> None:
    with pytest.raises(UsageError, match=r"checkpoint\.dir: nowhere://bucket cannot be opened"):
        open_storage("nowhere://bucket")
