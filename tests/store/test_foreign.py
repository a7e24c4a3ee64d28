import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from store import open_store
from store.errors import IdentityConflictError, NonFiniteError, StoreError, UnknownNameError
from store.foreign import LabelledTensor, import_tensors, read_labels, read_tokens
from store.foreign.tensors import open_tensor
from store.repository import Repository
from store.verify import census

N_LAYERS, N_TOKENS, WIDTH = 3, 12, 4


def values(step=0):
    return np.random.default_rng(step).standard_normal(
        (N_LAYERS, N_TOKENS, WIDTH), dtype=np.float32
    )


@pytest.fixture
def repository(memory_uri):
    return Repository.create(memory_uri)


def dump_npy(path, array):
    np.save(path / "a.npy", array)
    return open_tensor(path / "a.npy", "")


def dump_npz(path, array):
    np.savez(path / "a.npz", other=np.zeros(3), a=array)
    return open_tensor(path / "a.npz", "a")


def dump_packed_npz(path, array):
    np.savez_compressed(path / "a.npz", a=array)
    return open_tensor(path / "a.npz", "a")


def dump_safetensors(path, array):
    save_file({"b": torch.zeros(3), "a": torch.from_numpy(array)}, path / "a.safetensors")
    return open_tensor(path / "a.safetensors", "a")


def dump_torch(path, array):
    torch.save(torch.from_numpy(array), path / "a.pt")
    return open_tensor(path / "a.pt", "")


def dump_torch_states(path, array):
    states = {"hidden_states": (torch.zeros(3), torch.from_numpy(array).T), "ids": torch.arange(3)}
    torch.save(states, path / "a.pt")
    return open_tensor(path / "a.pt", "hidden_states.1")


@pytest.mark.parametrize(
    "dump",
    [dump_npy, dump_npz, dump_packed_npz, dump_safetensors, dump_torch, dump_torch_states],
)
def test_rows_of_a_file_are_those_that_were_dumped(tmp_path, dump):
    array = values()[0]
    found = dump(tmp_path, array)
    expected = array.T if dump is dump_torch_states else array
    np.testing.assert_array_equal(found.rows(np.array([2, 0])), expected[[2, 0]])
    assert found.dtype == "float32"


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_come_out_as_float32(tmp_path, suffix, dtype):
    tensor = torch.from_numpy(values()[0]).to(dtype)
    path = tmp_path / f"a{suffix}"
    if suffix == ".pt":
        torch.save({"a": tensor}, path)
    else:
        save_file({"a": tensor}, path)
    found = open_tensor(path, "a")
    np.testing.assert_array_equal(found.rows(slice(None)), tensor.float().numpy())
    assert f"torch.{found.dtype}" == str(dtype)


def test_a_view_of_a_larger_storage(tmp_path):
    tensor = torch.arange(24.0).reshape(4, 6)[1:3, ::2]
    torch.save(tensor, tmp_path / "a.pt")
    np.testing.assert_array_equal(
        open_tensor(tmp_path / "a.pt", "").rows(slice(None)), tensor.numpy()
    )


def test_code_in_a_pickle_is_not_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return exec, ("raise SystemExit('ran')",)

    torch.save({"a": Harmful()}, tmp_path / "a.pt", pickle_module=pickle)
    with pytest.raises(StoreError, match=r"refers to .*exec; expected tensors only"):
        open_tensor(tmp_path / "a.pt", "a")


def test_files_that_cannot_be_read(tmp_path):
    np.save(tmp_path / "whole.npy", np.arange(3))
    (tmp_path / "broken.pt").write_bytes(b"not a zip")
    np.savez(tmp_path / "plain.npz", a=np.zeros(2))
    (tmp_path / "plain.npz").rename(tmp_path / "plain.pt")
    np.savez(tmp_path / "a.npz", layer_1=np.zeros(2), layer_2=np.zeros(2))
    for name, tensor, message in (
        ("whole.npy", "", "expected floating-point numbers, got int64"),
        ("broken.pt", "", r"broken\.pt cannot be read as \.pt: File is not a zip file"),
        ("plain.pt", "", r"not one of torch\.save"),
        ("nothing.npy", "", r"nothing\.npy cannot be read as \.npy: .*No such file"),
        ("a.csv", "", r"has the suffix '\.csv'; expected \.npy, \.npz"),
    ):
        with pytest.raises(StoreError, match=message):
            open_tensor(tmp_path / name, tensor)
    with pytest.raises(UnknownNameError, match=r"no tensor 'layer_3' .*did you mean 'layer_"):
        open_tensor(tmp_path / "a.npz", "layer_3")


def write_dump(path, steps=(0, 8)):
    """A file a layer for step 0, one file with all layers for the others; and the table."""
    lines = ["file,tensor,step,site,layer"]
    for step in steps:
        if step == 0:
            for layer, rows in enumerate(values(0)):
                np.save(path / f"l{layer}.npy", rows)
                lines.append(f"l{layer}.npy,,0,,{layer}")
        else:
            np.savez(path / f"s{step}.npz", all=values(step), last=values(step)[2])
            lines.append(f"s{step}.npz,all,{step},residual,")
            lines.append(f"s{step}.npz,last,{step},final_norm,")
    (path / "labels.csv").write_text("\n".join(lines) + "\n")
    return read_labels(path / "labels.csv")


def test_dumps_become_steps_of_a_model(repository, tmp_path):
    labels = write_dump(tmp_path)
    assert import_tensors(repository, corpus="dumped", model="o/m", labels=labels).stored == (0, 8)
    model = open_store(repository.uri)["dumped/o--m"]
    for step in (0, 8):
        np.testing.assert_array_equal(model["residual"].sel(step=step), values(step))
    np.testing.assert_array_equal(model["final_norm"].sel(step=8), values(8)[2])
    assert np.isnan(model["final_norm"].sel(step=0)).all()
    assert model["position"].values.tolist() == list(range(N_TOKENS))
    assert model["source_dtype"].values.tolist() == ["float32", "float32"]
    assert model.attrs["n_blocks"] == 2
    assert census(repository) == []


def test_importing_again_does_nothing_and_something_else_is_refused(repository, tmp_path):
    labels = write_dump(tmp_path)
    import_tensors(repository, corpus="dumped", model="m", labels=labels)
    before = repository.snapshot_id()
    assert import_tensors(repository, corpus="dumped", model="m", labels=labels).stored == ()
    assert repository.snapshot_id() == before
    np.save(tmp_path / "l1.npy", values(5)[1])
    with pytest.raises(
        IdentityConflictError, match=r"\n  imported\.residual\.1\.file_sha256: stored "
    ):
        import_tensors(repository, corpus="dumped", model="m", labels=labels)


def test_sequences_padding_and_token_ids(repository, tmp_path):
    np.save(tmp_path / "a.npy", values().reshape(N_LAYERS, 3, 4, WIDTH))
    (label,) = (LabelledTensor(tmp_path / "a.npy", "", 0, "residual", None),)
    import_tensors(repository, corpus="whole", model="m", labels=[label])
    whole = open_store(repository.uri)["whole/m"]
    assert whole["sequence"].values.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert whole["position"].values.tolist() == [0, 1, 2, 3] * 3

    # The second sequence has two tokens of padding, rows 6 and 7.
    kept = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
    lines = ["sequence,row,token_id", *(f"{row // 4},{row},{row + 100}" for row in kept)]
    (tmp_path / "tokens.csv").write_text("\n".join(lines))
    tokens = read_tokens(tmp_path / "tokens.csv")
    import_tensors(repository, corpus="kept", model="m", labels=[label], tokens=tokens)
    model = open_store(repository.uri)["kept/m"]
    np.testing.assert_array_equal(model["residual"].sel(step=0), values()[:, kept])
    assert model["position"].values.tolist() == [0, 1, 2, 3, 0, 1, 0, 1, 2, 3]
    assert model["token_id"].values.tolist() == [row + 100 for row in kept]


def refused(repository, message, *labels, error=StoreError, tokens=None):
    with pytest.raises(error, match=message):
        import_tensors(repository, corpus="c", model="m", labels=labels, tokens=tokens)
    assert "c" not in repository.read()


def test_dumps_that_do_not_fit_are_refused_before_anything_is_stored(repository, tmp_path):
    np.save(tmp_path / "a.npy", values()[0])
    np.save(tmp_path / "b.npy", values()[1, :5])
    np.save(tmp_path / "flat.npy", values()[0, 0])

    def label(name, layer, step=0, site="residual"):
        return LabelledTensor(tmp_path / name, "", step, site, layer)

    refused(repository, r"layers \[0, 2\]; expected each one", label("a.npy", 0), label("a.npy", 2))
    refused(repository, r"shapes \[\(5, 4\), \(12, 4\)\]", label("a.npy", 0), label("b.npy", 1))
    refused(repository, r"shapes \[\(4,\)\]; expected one shape", label("flat.npy", 0))
    refused(repository, "2 tensors without a layer", label("a.npy", None), label("a.npy", None))
    refused(repository, "other steps have 1 of", label("a.npy", 0), label("b.npy", 0, 1))
    refused(repository, r"only sites of rows \(token, dim\)", label("a.npy", 1, site="query"))
    refused(
        repository,
        "5 tokens were described and tensors have 12 rows",
        label("a.npy", 0),
        tokens={"sequence": np.zeros(5, dtype=np.int64)},
    )


def test_values_that_are_not_finite_are_refused(repository, tmp_path):
    array = values()
    array[1, 3, 0] = np.inf
    np.save(tmp_path / "a.npy", array)
    label = LabelledTensor(tmp_path / "a.npy", "", 0, "residual", None)
    with pytest.raises(NonFiniteError, match=r"1 value of residual, layer 1 .* --allow-nonfinite"):
        import_tensors(repository, corpus="c", model="m", labels=[label])
    import_tensors(repository, corpus="c", model="m", labels=[label], allow_nonfinite=True)
    assert open_store(repository.uri)["c/m"].nonfinite.item() == 1


def test_tables_that_cannot_be_read(tmp_path):
    path = tmp_path / "table.csv"
    for content, error, message in (
        ("file,layer\na.npy,0\n", StoreError, "has the columns file, layer; step missing"),
        ("file,step\n", StoreError, "lists no tensors"),
        ("file,step\na.npy,x\n", StoreError, "line 2: step is 'x'; expected a whole number"),
        ("file,step,site\na.npy,0,residul\n", UnknownNameError, "no site 'residul' in .*line 2"),
    ):
        path.write_text(content)
        with pytest.raises(error, match=message):
            read_labels(path)
    path.write_text("sequence,colour\n0,1\n")
    with pytest.raises(UnknownNameError, match="no token coordinate 'colour'"):
        read_tokens(path)
