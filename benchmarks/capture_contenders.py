"""The ways to get a model's hidden states onto the disk that are compared, on one model and text.

The text is the standard library's own help, cut into paragraphs, so that sequences have natural
lengths; words are numbered as they come, so that no tokenizer is needed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# PyTorch is imported by these: before it, `flows` says how the threads of OpenMP wait.
from benchmarks.memory import forget_peak, peak, resident
from flows.capture import Tokens, find_checkpoints, from_ids
from flows.capture.affordable import batch_size, row_bytes, window_tokens
from flows.capture.batches import Pending, windows
from flows.capture.forward import capture_stacks
from flows.capture.parts import Part
from flows.capture.running import evaluating, run
from flows.capture.sites import available_sites, site_shapes
from flows.capture.weights import LoadedModel, load_model
from flows.streaming import PIECE_BYTES, stream
from store.codec import DEFAULT_CODEC, Codec
from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.layout import chunk_rows
from store.repository import Repository
from store.schema import PROBABILITIES, SITES
from store.write import AlreadyStored, reserve_step

if TYPE_CHECKING:
    import torch

MODEL = (
    "random:bert:num_hidden_layers=6,hidden_size=384,num_attention_heads=12,"
    "intermediate_size=1536,vocab_size=30522"
)
"""A BERT of the size of MiniLM; what is measured does not depend on its weights."""

LONGEST = 128

Contender = Callable[[LoadedModel, Tokens, Path], None]


def load(attention: Literal["eager"] | None = None) -> LoadedModel:
    """Return the model."""
    return load_model(find_checkpoints(MODEL)[0], device="cpu", attention=attention)


def every_site(loaded: LoadedModel) -> list[str]:
    """Return the names of all sites but full probabilities, which have passes of their own."""
    return [site for site in available_sites(loaded.stack) if site != PROBABILITIES]


def text(n_sequences: int) -> Tokens:
    """Return so many paragraphs of the standard library's help as ids, again if need be."""
    paragraphs = [
        words
        for topic in sorted(topics)
        for paragraph in topics[topic].split("\n\n")
        if len(words := paragraph.split()) > 3
    ]
    numbers: dict[str, int] = {}
    ids = [
        np.array([1000 + numbers.setdefault(word, len(numbers)) % 29_000 for word in words])
        for words in paragraphs
    ]
    order = np.random.default_rng(0).permutation(len(ids))
    chosen = [ids[order[i % len(ids)]] for i in range(n_sequences)]
    return from_ids(chosen, max_length=LONGEST)


def bare(loaded: LoadedModel, tokens: Tokens, _folder: Path) -> None:
    """Run the model over the same batches as capture does, and drop what it gives."""
    shapes = site_shapes(loaded.stack, ["residual"])
    size = batch_size(loaded, ["residual"])
    rows = chunk_rows(loaded.stack.width, len(tokens))
    with evaluating(loaded.model):
        n_tokens = window_tokens(tokens, row_bytes(shapes) * tokens.n_rows, size)
        for window in windows(tokens, n_tokens, rows):
            pending = Pending(tokens, window, 0)
            while pending:
                batch = pending.batch(size)
                run(loaded.model, batch.inputs)
                pending.done(batch)


def captured(loaded: LoadedModel, tokens: Tokens, _folder: Path) -> None:
    """Capture every layer, and drop the rows."""
    rows = chunk_rows(loaded.stack.width, len(tokens))
    part = Part(loaded, tokens, ["residual"], rows, piece_bytes=PIECE_BYTES)
    for _ in capture_stacks([part], allow_nonfinite=True):
        pass


def fast(loaded: LoadedModel, tokens: Tokens, folder: Path) -> None:
    """Capture every layer into a store, compressed by the fast codec."""
    stored(loaded, tokens, folder, codec="lz4")


def stored(
    loaded: LoadedModel,
    tokens: Tokens,
    folder: Path,
    *,
    codec: Codec = DEFAULT_CODEC,
    sites: Sequence[str] = ("residual",),
) -> None:
    """Capture into a new store, the way an ingest does."""
    repository = Repository.create(str(folder / "store"))
    spec = CorpusSpec("corpus", "ids", {}, 0, "0")
    create_corpus(repository, spec, texts=["-"], sources=["-"], source_starts=[0])
    stack = loaded.stack
    create_model(
        repository,
        "corpus",
        "model",
        arrays=[
            ArraySpec(SITES[shape.name], {**shape.sizes, "token": len(tokens)})
            for shape in site_shapes(stack, sites)
        ],
        tokens=tokens.coordinates(),
        attributes={"n_blocks": stack.n_blocks, "width": stack.width, "causal": stack.causal},
        codec=codec,
    )
    writer = reserve_step(repository, "corpus/model", 0, identity={"step": 0})
    assert not isinstance(writer, AlreadyStored)
    with writer:
        part = Part(loaded, tokens, sites, writer.chunk_rows, piece_bytes=PIECE_BYTES)
        # The writer looks for what is not finite, in its own thread.
        stream(capture_stacks([part], allow_nonfinite=True), writer)
        writer.commit(provenance={"source_dtype": loaded.source_dtype})


def naive(loaded: LoadedModel, tokens: Tokens, folder: Path) -> None:
    """Do what most scripts do: pad to the longest, collect hidden states in lists, save them."""
    import torch

    for layer, rows in enumerate(hidden_states(loaded, tokens)):
        torch.save(rows, folder / f"{layer}.pt")


def hidden_states(loaded: LoadedModel, tokens: Tokens) -> Iterator[torch.Tensor]:
    """Yield the rows (token, dim) of every layer, collected in lists over padded batches."""
    import torch

    collected: list[list[torch.Tensor]] = [[] for _ in range(loaded.stack.n_blocks + 1)]
    ids = torch.zeros(tokens.n_sequences, LONGEST, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i in range(tokens.n_sequences):
        own = torch.from_numpy(tokens.token_id[tokens.sequence_rows(i)].astype(np.int64))
        ids[i, : len(own)] = own
        mask[i, : len(own)] = 1
    with torch.no_grad():
        for own_ids, own_mask in zip(ids.split(16), mask.split(16), strict=True):
            output = loaded.model(
                input_ids=own_ids, attention_mask=own_mask, output_hidden_states=True
            )
            for rows, states in zip(collected, output.hidden_states, strict=True):
                rows += [state[: int(m.sum())] for state, m in zip(states, own_mask, strict=True)]
    yield from map(torch.cat, collected)


NAIVE = "naive"
STORING = ("fast", "stored")
"""Those that make a store, of the contenders."""

CONTENDERS: Mapping[str, Contender] = {
    "bare": bare,
    "captured": captured,
    "fast": fast,
    "stored": stored,
    NAIVE: naive,
}


def main(n_sequences: int, *, everywhere: bool) -> None:
    """Write the bytes resident with the model, those of a batch, and the peak, as JSON.

    What is measured is the storing of some sequences. The batch is one of all sites that are kept.
    """
    loaded, tokens = load("eager"), text(n_sequences)
    sites = every_site(loaded) if everywhere else ["residual"]
    row = sum(shape.bytes_per_token for shape in site_shapes(loaded.stack, sites))
    forget_peak()
    model = resident()
    with tempfile.TemporaryDirectory() as folder:
        stored(loaded, tokens, Path(folder), sites=sites)
    sys.stdout.write(json.dumps([model, row * batch_size(loaded, sites), peak()]))


if __name__ == "__main__":
    main(int(sys.argv[1]), everywhere="--everywhere" in sys.argv)
