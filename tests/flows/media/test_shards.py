"""Shards of WebDataset become corpora: the same as those of the files that were packed."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import datasets
import numpy as np
import pytest
from click.testing import CliRunner, Result

from flows.capture.errors import InputError
from flows.cli import actlas
from flows.corpora import Chunking
from flows.dataset_corpora import Columns
from flows.item_corpora import add_folder
from flows.shard_corpora import add_shards
from flows.shards import find_shards, read_samples
from store import open_store
from store.repository import Repository

ANY = Columns()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def pack(shard: Path, members: Mapping[str, bytes | str]) -> Path:
    """Write a shard of members, texts as UTF-8."""
    shard.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(shard, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            held = content.encode() if isinstance(content, str) else content
            info.size = len(held)
            tar.addfile(info, io.BytesIO(held))
    return shard


def drawn_shards(folder: Path, pictures: Path) -> Path:
    """Pack the pictures of the tests into two shards, with their folders as classes."""
    files = sorted(pictures.rglob("*.png"))
    for number, part in enumerate((files[:3], files[3:])):
        members: dict[str, bytes | str] = {}
        for file in part:
            key = file.relative_to(pictures).with_suffix("").as_posix()
            members[f"{key}.png"] = file.read_bytes()
            label = "" if file.parent == pictures else file.parent.name
            members[f"{key}.cls"] = f"{label}\n"
        pack(folder / f"train-{number:03d}.tar", members)
    return folder


def run(store: str, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(
        actlas, list(arguments), env={"ACTLAS_STORE": store}, catch_exceptions=False
    )
    assert result.exit_code == code, result.output
    return result


def test_a_model_makes_the_same_rows_of_packed_images(
    store: str, tmp_path: Path, pictures: Path, media_model: Callable[[str], str]
) -> None:
    folder = drawn_shards(tmp_path / "shards", pictures)
    run(store, "corpus", "add", "plain", "--images", str(pictures))
    pattern = str(folder / "train-{000..001}.tar")
    told = json.loads(run(store, "corpus", "add", "packed", "--dataset", pattern, "--json").output)
    assert (told["texts"], told["labels"], told["skipped"]) == (5, 2, [])
    for corpus in ("plain", "packed"):
        run(store, "ingest", media_model("vit"), "--corpus", corpus, "--sites", "residual")
    tree = open_store(store)
    for variable in ("item_sha256", "label"):
        expected, got = (tree[name][variable].values.tolist() for name in ("plain", "packed"))
        assert got == expected
    assert tree["packed"].item_name.values.tolist() == [
        *("train-000.tar:2", "train-000.tar:disc/0", "train-000.tar:disc/1"),
        *("train-001.tar:square/0", "train-001.tar:square/1"),
    ]
    plain, packed = (tree[f"{name}/random-vit"].to_dataset() for name in ("plain", "packed"))
    np.testing.assert_array_equal(packed.residual.values, plain.residual.values)
    assert packed.label.values.tolist() == plain.label.values.tolist()
    again = run(store, "corpus", "add", "packed", "--dataset", str(folder), "--json").output
    assert json.loads(again) == told


def test_samples_are_those_that_datasets_reads(tmp_path: Path, pictures: Path) -> None:
    files = sorted(pictures.rglob("*.png"))
    for number, part in enumerate((files[:3], files[3:])):
        members: dict[str, bytes | str] = {}
        for file in part:
            key = file.relative_to(pictures).with_suffix("").as_posix()
            members |= {f"{key}.json": "{}", f"{key}.png": file.read_bytes()}
        pack(tmp_path / f"{number}.tar", members)
    shards = [str(tmp_path / f"{number}.tar") for number in range(2)]
    rows = datasets.load_dataset("webdataset", data_files=shards, split="train", streaming=True)
    expected = [
        (f"{Path(row['__url__']).name}:{row['__key__']}", row["png"]["bytes"])
        for row in rows.cast_column("png", datasets.Image(decode=False))
    ]
    found = find_shards(tmp_path)
    samples = [one for name, shard in found.items() for one in read_samples(name, shard)]
    assert [(one.name, one.members["png"].read()) for one in samples] == expected


def test_sounds_with_labels_from_json(store: str, tmp_path: Path, noises: Path) -> None:
    members: dict[str, bytes | str] = {}
    for file in sorted(noises.glob("*.wav")):
        members[f"./{file.stem}.WAV"] = file.read_bytes()
        members[f"./{file.stem}.json"] = json.dumps({"label": 3, "who": file.stem})
        members[f"./{file.stem}.txt"] = "what is said"
    shard = pack(tmp_path / "heard.tar", members)
    by_label = add_shards(store, "label", shard, ANY)
    assert (by_label.modality, by_label.texts, by_label.labels) == ("audio", 4, 1)
    assert add_shards(store, "who", shard, Columns(label="who")).labels == 4
    add_folder(store, "plain", "audio", noises)
    tree = open_store(store)
    digests = [tree[name].item_sha256.values.tolist() for name in ("who", "plain")]
    assert digests[0] == digests[1]
    assert tree["who"].label.values.tolist() == ["a", "b", "c", "d"]
    assert tree["label"].label.values.tolist() == ["3"] * 4
    assert add_shards(store, "said", shard, Columns("txt")).modality == "text"
    with pytest.raises(InputError, match=r"\.json, \.txt, \.wav, and \.json the keys label, who"):
        add_shards(store, "x", shard, Columns(label="speaker"))
    pack(shard, members | {"./a.json": "{"})
    damaged = add_shards(store, "damaged", shard, ANY)
    assert [one.name for one in damaged.skipped] == ["heard.tar:a"]
    assert damaged.skipped[0].reason.startswith("its label: it is not JSON")
    with pytest.raises(InputError, match=r"and \.json the keys label, who"):
        add_shards(store, "x", shard, Columns(label="speaker"))


def test_texts_are_a_sequence_each(store: str, tmp_path: Path) -> None:
    members = {"a.txt": "good", "a.cls": "5", "b.txt": " ", "b.cls": "0", "c.txt": "so so"}
    shard = pack(tmp_path / "told.tar", members | {"d.txt": b"caf\xe9", "d.cls": "1"})
    added = add_shards(store, "told", shard, ANY)
    assert (added.modality, added.texts, added.labels) == ("text", 2, 2)
    assert [(one.name, one.reason) for one in added.skipped] == [
        ("told.tar:b", "it holds no text"),
        ("told.tar:d", "it is not UTF-8 text: byte 3 is 0xe9"),
    ]
    corpus = open_store(store)["told"]
    assert corpus.text.values.tolist() == ["good", "so so"]
    assert corpus.text_label.values.tolist() == ["5", ""]
    cut = add_shards(store, "cut", shard, ANY, chunking=Chunking("chars", 2))
    assert cut.texts == 2 + 2
    with pytest.raises(InputError, match=r"told\.tar:b: it holds no text; leave --strict out"):
        add_shards(store, "x", shard, ANY, strict=True)


def test_damaged_members_are_skipped_and_told_or_refused(
    store: str, tmp_path: Path, pictures: Path
) -> None:
    good = (pictures / "2.png").read_bytes()
    members = {"a.png": good, "b.png": good[:60], "c.cls": "no image", "../d.png": good}
    shard = pack(tmp_path / "s.tar", members)
    with tarfile.open(shard, "a") as tar:
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "a.png")):
            link = tarfile.TarInfo(f"link{kind.decode()}.png")
            link.type, link.linkname = kind, target
            tar.addfile(link)
        tar.addfile(tarfile.TarInfo(".hidden.png"), io.BytesIO())
    result = run(store, "corpus", "add", "some", "--dataset", str(shard))
    assert "Skipped 5:" in result.stderr
    for line in (
        "s.tar:b: it is no readable image",
        "s.tar:c: it has no member .png",
        "s.tar:../d: its name leads outside of the shard",
        "s.tar:link2: it is a link to /etc/passwd",
        "s.tar:link1: it is a link to a.png",
    ):
        assert line in result.stderr
    assert open_store(store)["some"].item_name.values.tolist() == ["s.tar:a"]
    before = Repository.open(store).snapshot_id()
    told = run(store, "corpus", "add", "x", "--dataset", str(shard), "--strict", code=1).stderr
    assert "s.tar:b: it is no readable image" in told
    assert Repository.open(store).snapshot_id() == before


def test_a_shard_that_is_cut_off_says_where(store: str, tmp_path: Path) -> None:
    whole = pack(tmp_path / "s.tar", {"a.txt": "x" * 600, "b.txt": "y" * 600}).read_bytes()
    # Headers at bytes 0 and 1536, content at 512 and 2048, the mark of the end from 3072.
    for length, told in (
        (0, r"s\.tar is cut off at byte 0\."),
        (700, r"cut off at byte 700: a\.txt, which starts at byte 0, goes on to byte 1536"),
        (1536, "cut off at byte 1536: it lacks the mark of its end"),
        (1700, "damaged at byte 1536, in a header"),
        (2500, r"cut off at byte 2500: b\.txt, which starts at byte 1536, goes on to byte 3072"),
        (3072, "cut off at byte 3072: it lacks the mark"),
    ):
        (tmp_path / "s.tar").write_bytes(whole[:length])
        with pytest.raises(InputError, match=f"{told}.*Copy or download the shard again"):
            add_shards(store, "x", tmp_path / "s.tar", ANY)
    (tmp_path / "s.tar").write_bytes(whole[:1540] + b"\xff" + whole[1541:])
    with pytest.raises(InputError, match="damaged at byte 1536"):
        add_shards(store, "x", tmp_path / "s.tar", ANY)
    (tmp_path / "s.tar").write_bytes(whole + whole)
    with pytest.raises(InputError, match="goes on after the mark of its end at byte 3072"):
        add_shards(store, "x", tmp_path / "s.tar", ANY)
    assert not Path(store).exists()


def test_no_byte_of_a_header_makes_it_fail_otherwise(store: str, tmp_path: Path) -> None:
    long = "x" * 120
    shard = pack(tmp_path / "s.tar", {f"{long}/a.txt": "some", "é.txt": "text"})
    whole = shard.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, 3072, 300):
        changed = bytearray(whole)
        changed[place] = int(rng.integers(256))
        shard.write_bytes(changed)
        try:
            for name, path in find_shards(shard).items():
                read_samples(name, path)
        except InputError:
            continue


def test_what_is_meant_is_asked_for_where_it_is_not_clear(
    store: str, tmp_path: Path, pictures: Path, noises: Path
) -> None:
    image, sound = (pictures / "2.png").read_bytes(), (noises / "a.wav").read_bytes()
    mixed = pack(tmp_path / "mixed.tar", {"a.png": image, "b.wav": sound, "b.cls": "1"})
    told = run(store, "corpus", "add", "x", "--dataset", str(mixed), code=2).stderr
    assert "mixed.tar holds 1 image .png, 1 audio .wav, 1 other .cls" in told
    assert "with --column, such as --column png" in told
    with pytest.raises(InputError, match=r"no members \.flac: it holds 1 image \.png"):
        add_shards(store, "x", mixed, Columns("flac"))
    with pytest.raises(InputError, match=r"such as --column png"):
        add_shards(store, "x", mixed, Columns("cls"))
    assert add_shards(store, "one", mixed, Columns("png")).modality == "image"
    masked = pack(tmp_path / "masked.tar", {"a.png": image, "a.mask.png": image})
    with pytest.raises(InputError, match=r"1 image \.png, 1 image \.mask\.png"):
        add_shards(store, "x", masked, ANY)
    assert add_shards(store, "mask", masked, Columns("mask.png")).texts == 1
    either = pack(tmp_path / "either.tar", {"a.png": image, "b.PNG": image, "c.jpg": image})
    assert add_shards(store, "either", either, ANY).texts == 3
    with pytest.raises(InputError, match="holds image, which is not cut"):
        add_shards(store, "x", either, ANY, chunking=Chunking("chars", 5))
    with pytest.raises(InputError, match="shards have no splits"):
        add_shards(store, "x", either, Columns(split="train"))


def test_empty_twice_named_and_packed_ones_are_refused(store: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"e\.tar holds no samples, .* 0001\.png"):
        add_shards(store, "x", pack(tmp_path / "e.tar", {"README": "no dot"}), ANY)
    twice = pack(tmp_path / "t.tar", {"a.txt": "one"})
    with tarfile.open(twice, "a") as tar:
        tar.addfile(tarfile.TarInfo("./a.txt"))
    with pytest.raises(InputError, match=r"holds \./a\.txt twice, the second at byte 1024"):
        add_shards(store, "x", twice, ANY)
    with tarfile.open(tmp_path / "z.tar", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
    with pytest.raises(InputError, match="is compressed: expected a plain tar file"):
        add_shards(store, "x", tmp_path / "z.tar", ANY)
    (tmp_path / "z.tar").rename(tmp_path / "z.tar.gz")
    told = run(store, "corpus", "add", "x", "--dataset", str(tmp_path / "z.tar.gz"), code=1)
    assert "Decompress it first, for instance with gunzip" in told.stderr
    (tmp_path / "n.tar").write_text("no tar file at all\n" * 100)
    with pytest.raises(InputError, match="is no tar file, or a damaged one"):
        add_shards(store, "x", tmp_path / "n.tar", ANY)


def test_patterns_mean_the_shards_that_the_shell_would_find(store: str, tmp_path: Path) -> None:
    for number in (8, 9, 10):
        pack(tmp_path / f"{number:03d}.tar", {"a.txt": f"text {number}"})
    for pattern in ("{008..010}.tar", "0*.tar", "{01,00}[089].tar", "{010,009,008}.tar"):
        assert list(find_shards(tmp_path / pattern)) == ["008.tar", "009.tar", "010.tar"]
    pack(tmp_path / "more" / "008.tar", {"a.txt": "other"})
    names = list(find_shards(tmp_path / "{.,more}" / "008.tar"))
    assert names == [str(tmp_path / "008.tar"), str(tmp_path / "more" / "008.tar")]
    told = run(store, "corpus", "add", "x", "--dataset", f"{tmp_path}/{{007..009}}.tar", code=1)
    assert "007.tar is not there" in told.stderr
    with pytest.raises(InputError, match=r"\{9\.\.8\} counts down: expected \{8\.\.9\}"):
        find_shards(tmp_path / "{9..8}.tar")
    run(store, "corpus", "add", "x", "--dataset", f"{tmp_path}/none.tar", code=2)
    (tmp_path / "nothing").mkdir()
    told = run(store, "corpus", "add", "x", "--dataset", str(tmp_path / "nothing"), code=1)
    assert "nor are there .tar shards in it" in told.stderr
