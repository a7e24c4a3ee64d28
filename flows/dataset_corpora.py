"""Corpora from the columns of data sets in the form of Hugging Face `datasets`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flows.added_corpus import AddedCorpus
from flows.capture.errors import InputChoiceError, InputError
from flows.capture.modality import AUDIO, IMAGE, TEXT
from flows.corpora import Chunking, add_texts
from flows.item_corpora import add_items
from flows.readable_texts import readable_texts

if TYPE_CHECKING:
    from datasets import Dataset

_READERS: Final = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".arrow": "arrow"}


WHOLE_TEXTS: Final = Chunking("whole")
"""A row is a sequence, as it stands."""


@dataclass(frozen=True)
class Columns:
    """Which part of a data set is meant.

    Attributes:
        content: Column of texts, images or sounds; the only one of such a kind when None.
        label: Column of labels, none when None.
        split: Split of a data set that has several.
    """

    content: str | None = None
    label: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Entry:
    """The image or sound of one row.

    Attributes:
        name: File that it came from, or the number of the row.
        label: Its label, empty where it has none.
        fetch: Gives its bytes.
    """

    name: str
    label: str
    fetch: Callable[[], bytes]

    def read(self) -> bytes:
        """Return its bytes."""
        return self.fetch()


def add_dataset(
    store_uri: str,
    name: str,
    path: Path,
    columns: Columns,
    *,
    chunking: Chunking = WHOLE_TEXTS,
    max_sequences: int | None = None,
    seed: int = 0,
    special_tokens: bool = True,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AddedCorpus:
    """Add a column of a data set as a corpus: of texts, images or sounds, as its type says.

    Args:
        store_uri: The store.
        name: Name of the corpus.
        path: A folder written by ``save_to_disk``, or a Parquet, Arrow or JSON file.
        columns: Which part of it.
        chunking: How texts become sequences.
        max_sequences: Number of sequences or items to draw at random; all when None.
        seed: Seed of that draw.
        special_tokens: Whether tokenizers add theirs.
        strict: Refuse the corpus if an image or sound cannot be decoded, or a text is blank;
            those are left out otherwise.
        progress: Called with the number of images or sounds just decoded, and of all.

    Raises:
        InputError: If it cannot be read, has no such column or split, or nothing of it is left.
        IdentityConflictError: If another corpus has the name.
    """
    with tempfile.TemporaryDirectory(prefix="actlas-dataset-") as cache:
        rows = _rows(path, columns.split, cache)
        kinds = _kinds(rows)
        column = _column(path, kinds, columns.content)
        labels = _labels(path, rows, columns.label)
        if kinds[column] == TEXT:
            names = [f"{path.name}#{number}" for number in range(len(rows))]
            held = dict(zip(names, rows[column], strict=True))
            texts, skipped = readable_texts(names, held.get, strict=strict)
            added = add_texts(
                *(store_uri, name, texts),
                chunking=chunking,
                max_sequences=max_sequences,
                seed=seed,
                special_tokens=special_tokens,
                labels=dict(zip(names, labels, strict=True)) if columns.label else None,
            )
            return replace(added, skipped=skipped)
        entries = _entries(path, rows, column, kinds[column], labels)
        return add_items(
            store_uri,
            name,
            kinds[column],
            entries,
            max_items=max_sequences,
            seed=seed,
            strict=strict,
            progress=progress,
        )


def _rows(path: Path, split: str | None, cache: str) -> Dataset:
    try:
        import datasets
    except ImportError as error:
        raise InputError("data sets need datasets: pip install 'actlas[datasets]'") from error
    datasets.disable_progress_bars()
    try:
        if path.is_dir():
            found = datasets.load_from_disk(str(path))
        else:
            reader = _READERS.get(path.suffix)
            if reader is None:
                raise InputError(
                    f"{path} is no data set: expected a folder written by save_to_disk, or a file "
                    f"that ends in {', '.join(_READERS)}, or .tar shards"
                )
            found = datasets.load_dataset(reader, data_files=str(path), cache_dir=cache)
            found = found["train"]
    except InputError:
        raise
    except Exception as error:
        shards = ", nor are there .tar shards in it" if path.is_dir() else ""
        raise InputError(f"{path} cannot be read as a data set: {error}{shards}") from error
    if isinstance(found, datasets.DatasetDict):
        names = list(found)
        if split is None and len(names) == 1:
            split = names[0]
        if split not in found:
            raise InputChoiceError(
                f"{path} has the splits {', '.join(names)}: name one with --split"
            )
        found = found[split]
    return found


def _kinds(rows: Dataset) -> dict[str, str]:
    """Return the columns that can be a corpus, with the kind of what they hold."""
    kinds = {"Image": IMAGE, "Audio": AUDIO}
    found = {}
    for name, feature in rows.features.items():
        kind = kinds.get(type(feature).__name__)
        if kind or getattr(feature, "dtype", None) in ("string", "large_string"):
            found[name] = kind or TEXT
    return found


def _column(path: Path, kinds: Mapping[str, str], wanted: str | None) -> str:
    items = [name for name, kind in kinds.items() if kind != TEXT]
    likely = items if items else list(kinds)
    if wanted in kinds:
        return str(wanted)
    if wanted is None and len(likely) == 1:
        return likely[0]
    told = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
    raise InputChoiceError(
        f"{path} has {told or 'no columns of text, images or sounds'}: name --column"
    )


def _labels(path: Path, rows: Dataset, column: str | None) -> list[str]:
    if column is None:
        return [""] * len(rows)
    if column not in rows.features:
        raise InputChoiceError(
            f"{path} has no column {column!r}: it has {', '.join(rows.features)}"
        )
    name_of = getattr(rows.features[column], "int2str", str)
    return [str(name_of(value)) for value in rows[column]]


def _entries(path: Path, rows: Dataset, column: str, kind: str, labels: list[str]) -> list[Entry]:
    import datasets

    raw = datasets.Image(decode=False) if kind == IMAGE else datasets.Audio(decode=False)
    plain = rows.select_columns([column]).cast_column(column, raw)

    def fetch(number: int) -> Callable[[], bytes]:
        def read() -> bytes:
            held = plain[number][column] or {}
            if held.get("bytes") is not None:
                return bytes(held["bytes"])
            if held.get("path") is None:
                raise InputError("it holds nothing")
            return Path(str(held["path"])).read_bytes()

        return read

    files = (plain[number][column] or {} for number in range(len(plain)))
    names = [Path(held.get("path") or f"{path.name}#{i}").name for i, held in enumerate(files)]
    return [Entry(names[i], labels[i], fetch(i)) for i in range(len(plain))]
