"""Where a store is: from a URI to Icechunk storage, and to a directory when it is on a disk."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from urllib.parse import unquote, urlsplit

import icechunk

from .errors import (
    InvalidLocationError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)

_memory: dict[str, tuple[icechunk.Storage, RLock]] = {}


@dataclass(frozen=True)
class Location:
    """A place for a store.

    Attributes:
        uri: The place in its normal form; a local path is absolute.
        directory: The directory of a store on a disk, None elsewhere.
        memory_lock: Serialises the commits of a store in this process's memory, None elsewhere.
    """

    uri: str
    directory: Path | None = None
    memory_lock: RLock | None = field(default=None, repr=False, compare=False)

    def storage(self) -> icechunk.Storage:
        """Return the Icechunk storage of the place."""
        if self.directory is not None:
            return icechunk.local_filesystem_storage(str(self.directory))
        if self.memory_lock is not None:
            return _memory[self.uri][0]
        return _object_storage(self.uri)


def locate(uri: str | os.PathLike[str]) -> Location:
    """Read a URI or a path.

    Args:
        uri: A path, ``file://``, ``memory://NAME``, ``s3://BUCKET/PREFIX``, ``gs://...`` or
            ``az://CONTAINER/PREFIX``.

    Raises:
        InvalidLocationError: If the scheme is unknown or the bucket is missing.
    """
    text = os.fspath(uri)
    if "://" not in text:
        return _local(Path(text))
    parts = urlsplit(text)
    if parts.scheme == "file":
        return _local(Path(unquote(parts.path)))
    if parts.scheme == "memory":
        storage_lock = _memory.setdefault(text, (icechunk.in_memory_storage(), RLock()))
        return Location(text, memory_lock=storage_lock[1])
    if parts.scheme not in ("s3", "gs", "az"):
        raise InvalidLocationError(
            f"store URI {text!r} has the scheme {parts.scheme!r}; expected a path, or one of"
            " file://, memory://, s3://, gs://, az://"
        )
    if not parts.netloc:
        raise InvalidLocationError(
            f"store URI {text!r} names no bucket; expected {parts.scheme}://BUCKET/…"
        )
    return Location(text.rstrip("/"))


def _local(path: Path) -> Location:
    directory = path.expanduser().absolute()
    return Location(str(directory), directory=directory)


def _object_storage(uri: str) -> icechunk.Storage:
    parts = urlsplit(uri)
    prefix = parts.path.strip("/")
    if parts.scheme == "gs":
        return icechunk.gcs_storage(bucket=parts.netloc, prefix=prefix, from_env=True)
    if parts.scheme == "az":
        account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not account:
            raise StoreError(f"{uri}: set AZURE_STORAGE_ACCOUNT_NAME to the storage account")
        return icechunk.azure_storage(
            account=account, container=parts.netloc, prefix=prefix, from_env=True
        )
    return _s3_storage(parts.netloc, prefix)


def _s3_storage(bucket: str, prefix: str) -> icechunk.Storage:
    """Take credentials and profiles as the AWS SDK does, and what the SDK leaves to its caller."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    anonymous = os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true")
    return icechunk.s3_storage(
        bucket=bucket,
        prefix=prefix,
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        endpoint_url=endpoint,
        allow_http=endpoint is not None and endpoint.startswith("http://"),
        force_path_style=endpoint is not None,
        anonymous=True if anonymous else None,
        from_env=None if anonymous else True,
    )


def check_directory(location: Location) -> None:
    """Refuse a local place that cannot be a store, before Icechunk creates anything there.

    Raises:
        StoreNotFoundError: If the place does not exist, is a file, or holds no store.
    """
    directory = location.directory
    if directory is None:
        return
    if not directory.exists():
        raise StoreNotFoundError(
            f"no store at {directory}: the path does not exist. Adding a corpus creates one"
            " (`actlas corpus add`); for one that is there, check the path (--store, ACTLAS_STORE)"
        )
    if not directory.is_dir():
        raise StoreNotFoundError(
            f"no store at {directory}: expected a directory, found a file."
            " Give the directory of a store, or a new path"
        )
    if not (directory / "refs").is_dir() and not (directory / "repo").exists():
        raise StoreNotFoundError(
            f"no store at {directory}: the directory is not an activation store (it holds no"
            " Icechunk repository). Give the directory of a store, or a new path"
        )


def check_vacant(location: Location) -> None:
    """Refuse a local place where there is something already.

    Raises:
        StoreExistsError: If it is a file, or a directory that is not empty.
    """
    directory = location.directory
    if directory is None or not directory.exists():
        return
    if not directory.is_dir():
        raise StoreExistsError(f"cannot create a store at {directory}: it is a file")
    if any(directory.iterdir()):
        raise StoreExistsError(
            f"cannot create a store at {directory}: the directory is not empty."
            " Open it if it is a store, or give a new path"
        )
