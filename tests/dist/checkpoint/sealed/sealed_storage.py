"""A local folder with the ways of object storage: what is written can be deleted, not moved and not overwritten."""

from typing import Any

from fsspec.implementations.local import LocalFileSystem


class Sealed(LocalFileSystem):  # type: ignore[misc]
    """sealed:///folder"""

    protocol = "sealed"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("sealed://"))
        return stripped

    def _open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        if "w" in mode and self.exists(path):
            raise PermissionError(f"{path} would be overwritten")
        return super()._open(path, mode, *args, **kwargs)

    def mv(self, *args: Any, **kwargs: Any) -> None:
        raise PermissionError("objects cannot be moved")

    mv_file = rename = move = mv
