"""Models and datasets of the Hugging Face hub, staged onto shared storage once, before a hundred ranks want them.

``HF_TOKEN``, ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` mean what they mean to ``huggingface_hub``.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.data.reading import SUFFIXES
from seatrial.errors import IntegrityError, SeatrialError, UsageError
from seatrial.hardware import GB
from seatrial.records import JsonObject, write_json

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# A training needs one weight format and no original checkpoints.
NOT_FETCHED = ("*.bin", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "original/*", "onnx/*")
ROW_FILES = tuple(f"*{suffix}" for suffix in SUFFIXES)
TOKENIZER_FILES = ("config.json", "tokenizer*", "special_tokens_map.json", "*.jinja", "*.model")


def is_hub_name(text: str) -> bool:
    """Whether ``text`` can only be ``owner/name``, neither an existing path nor the name of a data file."""
    path = Path(text)
    return not path.exists() and path.suffix not in SUFFIXES and HUB_NAME.fullmatch(text) is not None


def fetch(name: str, to: Path, *, revision: str | None = None) -> JsonObject:
    """Download a model or a dataset (``datasets/owner/name`` where both have the name) into ``to``.

    What is returned, and written to ``to/fetched.json``, pins the commit: passing it back as ``revision`` fetches the
    same bytes. What ``to`` already holds whole stays as it is, and the hub is not asked; what was cut off goes on.

    Raises:
        UsageError: no such name or revision, no access, offline, or no room.
        IntegrityError: a file came in another size than the hub says.
    """
    kind, name = ("dataset", name.removeprefix("datasets/")) if name.startswith("datasets/") else (None, name)
    if HUB_NAME.fullmatch(name) is None:
        raise UsageError(f"{name}: not a hub name such as Qwen/Qwen2.5-0.5B-Instruct or datasets/owner/name")
    if to.exists() and not to.is_dir():
        raise UsageError(f"--to {to}: is a file; choose a directory")
    if (there := _fetched_before(to, name, kind, revision)) is not None:
        return there
    kind, commit = _find(name, kind, revision)
    ignore = NOT_FETCHED if kind == "model" else ()
    plan = _plan(name, kind, commit, ignore=ignore, to=to)
    to.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(to).free
    if free < plan.missing_bytes:
        raise UsageError(f"--to {to}: {free / GB:.1f} GB free, {name} takes {plan.missing_bytes / GB:.1f} GB more")
    _download(name, kind, commit, ignore=ignore, to=to)
    if wrong := _wrong_files(to, plan.files):
        raise IntegrityError(f"{to}: {', '.join(wrong)}: not as large as the hub says; delete them and fetch again")
    fetched: JsonObject = {"name": name, "kind": kind, "revision": commit, "path": str(to)}
    write_json(to / "fetched.json", {**fetched, "files": dict(plan.files)})
    return fetched


@dataclass(frozen=True)
class FetchPlan:
    """What would be downloaded. ``files``: bytes of each by name; ``missing_bytes``: of those that are not there."""

    files: Mapping[str, int]
    missing_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(self.files.values())


def plan_model(name: str) -> FetchPlan:
    """What a training would download of a model by this name. Asks the hub for every file, and downloads nothing.

    Raises:
        UsageError: no such model, no access, offline.
    """
    _, commit = _find(name, "model", None)
    return _plan(name, "model", commit, ignore=NOT_FETCHED)


def tokenizer_folder(name: str) -> Path:
    """Folder in the hub's cache with config.json and the tokenizer of a model, without its weights.

    Raises:
        UsageError: no such model, no access, offline.
    """
    return _download(name, "model", None, allow=TOKENIZER_FILES)


def dataset_files(name: str, *, revision: str | None = None) -> Path:
    """Folder in the hub's cache with the row files of a dataset, downloaded where they are missing.

    Raises:
        UsageError: no such dataset or revision, no access, offline and not cached.
    """
    return _download(name, "dataset", revision, allow=ROW_FILES)


def _fetched_before(to: Path, name: str, kind: str | None, revision: str | None) -> JsonObject | None:
    """What ``fetched.json`` says, where it is what is asked for and every file still has its size."""
    note = to / "fetched.json"
    if not note.is_file():
        return None
    said: JsonObject = json.loads(note.read_text())
    files = said.pop("files", None)
    same = said["name"] == name and kind in (None, said["kind"]) and revision in (None, said["revision"])
    if not same or files is None or _wrong_files(to, files):
        return None
    return {**said, "path": str(to)}


def _wrong_files(folder: Path, files: Mapping[str, int]) -> list[str]:
    """Files that are missing or have another size."""

    def is_right(path: Path, size: int) -> bool:
        return path.is_file() and path.stat().st_size == size

    return [name for name, size in files.items() if not is_right(folder / name, size)]


def _find(name: str, kind: str | None, revision: str | None) -> tuple[str, str]:
    """Kind and commit of what ``name`` stands for."""
    from huggingface_hub import HfApi, errors
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP client it is built on

    for candidate in (kind,) if kind else ("model", "dataset"):
        try:
            info = HfApi().repo_info(name, repo_type=candidate, revision=revision)
        except errors.GatedRepoError as error:
            raise UsageError(_explanation(error, name, revision)) from error
        except errors.RepositoryNotFoundError:
            continue
        except (OSError, HTTPError) as error:
            raise UsageError(_explanation(error, name, revision)) from error
        if info.sha is None:
            raise SeatrialError(f"{name}: the hub names no commit")
        return candidate, info.sha
    raise UsageError(f"{name}: no such model or dataset on the hub, or it is private; check the name and HF_TOKEN")


def _plan(
    name: str, kind: str, revision: str | None, *, ignore: Sequence[str] = (), to: Path | None = None
) -> FetchPlan:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP client it is built on

    try:
        found = snapshot_download(
            name, repo_type=kind, revision=revision, local_dir=to, ignore_patterns=list(ignore), dry_run=True
        )
    except (OSError, HTTPError) as error:
        raise UsageError(_explanation(error, name, revision)) from error
    return FetchPlan(
        {file.filename: file.file_size or 0 for file in found},
        sum(file.file_size or 0 for file in found if file.will_download),
    )


def _download(
    name: str,
    kind: str,
    revision: str | None,
    *,
    ignore: Sequence[str] = (),
    allow: Sequence[str] | None = None,
    to: Path | None = None,
) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP client it is built on

    try:
        folder = snapshot_download(
            name,
            repo_type=kind,
            revision=revision,
            local_dir=to,
            ignore_patterns=list(ignore),
            allow_patterns=None if allow is None else list(allow),
        )
    except (OSError, HTTPError) as error:
        raise UsageError(_explanation(error, name, revision)) from error
    return Path(folder)


def _explanation(error: Exception, name: str, revision: str | None) -> str:
    """The hub's many errors as one line with a remedy."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return f"{name}: is gated; accept its terms on the hub and set HF_TOKEN"
        case errors.RevisionNotFoundError():
            return f"{name}: has no revision {revision}"
        case errors.RepositoryNotFoundError():
            return f"{name}: no such name on the hub, or it is private; check the name and HF_TOKEN"
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError():
            return f"{name}: not in the local cache, and the hub is out of reach; pass a folder fetched elsewhere"
        case _:
            return f"{name}: the hub cannot be read: {' '.join(str(error).split())}"
