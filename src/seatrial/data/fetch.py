"""Models and datasets of the Hugging Face hub, staged onto shared storage once, before a hundred ranks want them.

``HF_TOKEN``, ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` mean what they mean to ``huggingface_hub``.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from seatrial.data.reading import SUFFIXES
from seatrial.errors import SeatrialError, UsageError
from seatrial.records import JsonObject, write_json

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# A training needs one weight format and no original checkpoints.
NOT_FETCHED = ("*.bin", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "original/*", "onnx/*")
ROW_FILES = tuple(f"*{suffix}" for suffix in SUFFIXES)


def is_hub_name(text: str) -> bool:
    """Whether ``text`` can only be ``owner/name``, neither an existing path nor the name of a data file."""
    path = Path(text)
    return not path.exists() and path.suffix not in SUFFIXES and HUB_NAME.fullmatch(text) is not None


def fetch(name: str, to: Path, *, revision: str | None = None) -> JsonObject:
    """Download a model or a dataset (``datasets/owner/name`` where both have the name) into ``to``.

    What is returned, and written to ``to/fetched.json``, pins the commit: passing it back as ``revision`` fetches the
    same bytes.

    Raises:
        UsageError: no such name or revision, no access, offline.
    """
    kind, name = ("dataset", name.removeprefix("datasets/")) if name.startswith("datasets/") else (None, name)
    if HUB_NAME.fullmatch(name) is None:
        raise UsageError(f"{name}: not a hub name such as Qwen/Qwen2.5-0.5B-Instruct or datasets/owner/name")
    if to.exists() and not to.is_dir():
        raise UsageError(f"--to {to}: is a file; choose a directory")
    kind, commit = _find(name, kind, revision)
    _download(name, kind, commit, ignore=NOT_FETCHED if kind == "model" else (), to=to)
    fetched: JsonObject = {"name": name, "kind": kind, "revision": commit, "path": str(to)}
    write_json(to / "fetched.json", fetched)
    return fetched


def dataset_files(name: str, *, revision: str | None = None) -> Path:
    """Folder in the hub's cache with the row files of a dataset, downloaded where they are missing.

    Raises:
        UsageError: no such dataset or revision, no access, offline and not cached.
    """
    return _download(name, "dataset", revision, allow=ROW_FILES)


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
            return f"{name}: no such dataset on the hub, or it is private; check the name and HF_TOKEN"
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError():
            return f"{name}: not in the local cache, and the hub is out of reach; pass a folder fetched elsewhere"
        case _:
            return f"{name}: the hub cannot be read: {' '.join(str(error).split())}"
