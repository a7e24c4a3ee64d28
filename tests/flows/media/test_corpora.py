"""Images, sounds and data sets become corpora: sorted, labelled, and checked one by one."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest

from flows.capture.errors import InputError
from flows.dataset_corpora import Columns, add_dataset
from flows.inputs import read_corpus
from flows.item_corpora import File, add_folder, add_items
from store import open_store
from store.errors import IdentityConflictError, StoreError
from store.items import StoredItems
from store.repository import Repository

NAMES = ["2.png", "disc/0.png", "disc/1.png", "square/0.png", "square/1.png"]


@pytest.fixture
def folder(tmp_path: Path, pictures: Path) -> Path:
    """Return a copy of the pictures, to be damaged."""
    return shutil.copytree(pictures, tmp_path / "copy")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def test_items_keep_their_bytes_names_and_labels(store: str, pictures: Path) -> None:
    added = add_folder(store, "drawn", "image", pictures)
    assert (added.texts, added.labels, added.skipped) == (5, 2, ())
    corpus = open_store(store)["drawn"]
    assert corpus.item_name.values.tolist() == NAMES
    assert corpus.label.values.tolist() == ["", "disc", "disc", "square", "square"]
    items = StoredItems(read_corpus(Repository.open(store), "drawn").group)
    for number, name in enumerate(NAMES):
        content = (pictures / name).read_bytes()
        assert items.read(number) == content
        assert corpus.item_sha256.values[number] == hashlib.sha256(content).hexdigest()


def test_the_same_again_changes_nothing_and_another_label_is_another_corpus(
    store: str, folder: Path
) -> None:
    add_folder(store, "drawn", "image", folder)
    snapshot = Repository.open(store).snapshot_id()
    add_folder(store, "drawn", "image", folder)
    assert Repository.open(store).snapshot_id() == snapshot
    (folder / "square").rename(folder / "box")
    with pytest.raises(IdentityConflictError, match="content_sha256"):
        add_folder(store, "drawn", "image", folder)


def test_damaged_files_are_skipped_and_told_or_refused(store: str, folder: Path) -> None:
    good = (folder / "disc" / "0.png").read_bytes()
    (folder / "disc" / "0.png").write_bytes(good[: len(good) // 2])
    (folder / "disc" / "notes.txt").write_text("no picture, and not meant to be")
    with pytest.raises(InputError, match=r"disc/0\.png: it is no readable image"):
        add_folder(store, "drawn", "image", folder, strict=True)
    added = add_folder(store, "drawn", "image", folder)
    assert [skipped.name for skipped in added.skipped] == ["disc/0.png"]
    assert added.texts == 4


def test_a_folder_without_images_is_refused(store: str, noises: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no image files"):
        add_folder(store, "drawn", "image", noises)
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match="none of 1 files can be decoded"):
        add_folder(store, "drawn", "image", tmp_path / "only")
    assert not Path(store).exists()


def test_a_draw_keeps_the_order(store: str, pictures: Path) -> None:
    add_folder(store, "two", "image", pictures, max_items=2, seed=1)
    names = open_store(store)["two"].item_name.values.tolist()
    assert len(names) == 2
    assert names == sorted(names, key=NAMES.index)


def test_bytes_that_changed_in_the_store_are_noticed(store: str, pictures: Path) -> None:
    add_folder(store, "drawn", "image", pictures)
    repository = Repository.open(store)

    def swap(root: object) -> None:
        root["drawn/content"][3] = 255  # type: ignore[index]

    repository.update("damage", swap)
    items = StoredItems(read_corpus(repository, "drawn").group)
    with pytest.raises(StoreError, match=r"2\.png, has other bytes than were stored"):
        items.read(0)


def labelled_images(pictures: Path) -> datasets.Dataset:
    files = sorted(pictures.rglob("*.png"))
    rows = {"picture": [str(file) for file in files], "kind": [0, 0, 0, 1, 1]}
    kinds = datasets.ClassLabel(names=["disc", "square"])
    features = datasets.Features({"picture": datasets.Image(), "kind": kinds})
    return datasets.Dataset.from_dict(rows, features=features)


def test_images_of_a_parquet_file(store: str, pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "drawn.parquet"
    labelled_images(pictures).to_parquet(str(file))
    added = add_dataset(store, "drawn", file, Columns(label="kind"))
    assert (added.modality, added.texts, added.labels) == ("image", 5, 2)
    labels = open_store(store)["drawn"].label.values.tolist()
    assert labels == ["disc"] * 3 + ["square"] * 2


def test_sounds_of_a_saved_split(store: str, noises: Path, tmp_path: Path) -> None:
    files = sorted(noises.glob("*.wav"))
    clips = [{"path": file.name, "bytes": file.read_bytes()} for file in files]
    # Cast, since to encode sounds datasets wants a package that reading them here does not need.
    rows = datasets.Dataset.from_dict({"clip": clips})
    rows = rows.cast_column("clip", datasets.Audio(decode=False))
    datasets.DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk(tmp_path / "saved")
    with pytest.raises(InputError, match="splits train, test: name one with --split"):
        add_dataset(store, "heard", tmp_path / "saved", Columns())
    added = add_dataset(store, "heard", tmp_path / "saved", Columns(split="train"))
    assert (added.modality, added.texts) == ("audio", 4)


def test_texts_of_a_json_file_are_a_sequence_each(store: str, tmp_path: Path) -> None:
    file = tmp_path / "reviews.jsonl"
    file.write_text(
        '{"text": "good", "stars": 5}\n{"text": "", "stars": 0}\n{"text": "so so", "stars": 3}\n'
        '{"text": " \\n", "stars": 1}\n'
    )
    with pytest.raises(InputError, match=r"reviews\.jsonl#1: it holds no text; leave --strict out"):
        add_dataset(store, "reviews", file, Columns("text", "stars"), strict=True)
    added = add_dataset(store, "reviews", file, Columns("text", "stars"))
    assert (added.modality, added.texts, added.labels) == ("text", 2, 2)
    assert [skipped.reason for skipped in added.skipped] == ["it holds no text"] * 2
    corpus = open_store(store)["reviews"]
    assert corpus.text.values.tolist() == ["good", "so so"]
    assert corpus.text_label.values.tolist() == ["5", "3"]
    assert corpus.attrs["chunking"] == {"unit": "whole"}


def test_blank_texts_are_skipped_and_told_or_refused(store: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text('{"text": "good"}\n{"text": " \\n"}\n{"text": null}\n')
    with pytest.raises(InputError, match=r"notes\.jsonl#1: it holds no text; leave --strict out"):
        add_dataset(store, "notes", file, Columns(), strict=True)
    added = add_dataset(store, "notes", file, Columns())
    assert [skipped.name for skipped in added.skipped] == ["notes.jsonl#1", "notes.jsonl#2"]
    assert open_store(store)["notes"].text.values.tolist() == ["good"]
    file.write_text('{"text": ""}\n{"text": " "}\n')
    with pytest.raises(InputError, match=r"none of 2 texts can be read, notes\.jsonl#0 first"):
        add_dataset(store, "other", file, Columns())


def test_images_that_are_not_there_are_skipped_and_told(
    store: str, pictures: Path, tmp_path: Path
) -> None:
    features = datasets.Features({"image": datasets.Image()})
    rows = {"image": [str(pictures / "2.png"), None]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    added = add_dataset(store, "drawn", tmp_path / "saved", Columns())
    assert (added.texts, [skipped.reason for skipped in added.skipped]) == (1, ["it holds nothing"])
    files = [File(pictures / "2.png", "there", ""), File(tmp_path / "gone.png", "gone", "")]
    added = add_items(store, "two", "image", files)
    assert [skipped.name for skipped in added.skipped] == ["gone"]
    assert "it cannot be read: [Errno 2] No such file" in added.skipped[0].reason
    with pytest.raises(InputError, match=r"gone: it cannot be read: .*; leave --strict out"):
        add_items(store, "three", "image", files, strict=True)


def test_columns_and_files_that_are_not_there_are_named(store: str, tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    file.write_text('{"title": "a", "body": "b", "stars": 1}\n')
    with pytest.raises(InputError, match=r"title \(text\), body \(text\): name --column"):
        add_dataset(store, "x", file, Columns())
    with pytest.raises(InputError, match="no column 'label'"):
        add_dataset(store, "x", file, Columns("body", "label"))
    np.save(tmp_path / "no.npy", np.zeros(2))
    with pytest.raises(InputError, match="is no data set"):
        add_dataset(store, "x", tmp_path / "no.npy", Columns())
