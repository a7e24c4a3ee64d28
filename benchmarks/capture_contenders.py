"""The ways to get a model's hidden states onto the disk that are compared, on one model and text.

The text is the standard library's own help, cut into paragraphs, so that sequences have natural
lengths; words are numbered as they come, so that no tokenizer is needed.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flows.capture import Tokens, find_checkpoints, from_ids
from flows.capture.batches import Pending, windows
from flows.capture.forward import batch_size, capture, window_tokens
from flows.capture.running import evaluating, run
from flows.capture.sites import site_shapes
from flows.capture.weights import LoadedModel, load_model
from flows.streaming import stream
from store.codec import DEFAULT_CODEC, Codec
from store.corpora import CorpusSpec, create_corpus
from store.create import ArraySpec, create_model
from store.repository import Repository
from store.schema import SITES
from store.write import AlreadyStored, reserve_step

MODEL = (
    "random:bert:num_hidden_layers=6,hidden_size=384,num_attention_heads=12,"
    "intermediate_size=1536,vocab_size=30522"
)
"""A BERT of the size of MiniLM; what is measured does not depend on its weights."""

LONGEST = 128

Contender = Callable[[LoadedModel, Tokens, Path], None]


def load() -> LoadedModel:
    """Return the model."""
    return load_model(find_checkpoints(MODEL)[0], device="cpu")


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
    """Run the model over the same batches as `capture` does, and drop what it gives."""
    shapes = site_shapes(loaded.stack, ["residual"])
    size = batch_size(loaded, ["residual"])
    with evaluating(loaded.model):
        for window in windows(tokens, window_tokens(tokens, shapes, size)):
            pending = Pending(tokens, window, 0)
            while pending:
                batch = pending.batch(size)
                run(loaded.model, batch.inputs)
                pending.done(batch)


def captured(loaded: LoadedModel, tokens: Tokens, _folder: Path) -> None:
    """Capture every layer, and drop the blocks of rows."""
    for _ in capture(loaded, tokens, ["residual"], block_rows=4096):
        pass


def fast(loaded: LoadedModel, tokens: Tokens, folder: Path) -> None:
    """Capture every layer into a store, compressed by the fast codec."""
    stored(loaded, tokens, folder, codec="lz4")


def stored(
    loaded: LoadedModel, tokens: Tokens, folder: Path, *, codec: Codec = DEFAULT_CODEC
) -> None:
    """Capture every layer into a store."""
    repository = Repository.create(str(folder / "store"))
    spec = CorpusSpec("corpus", "ids", {}, 0, "0")
    create_corpus(repository, spec, texts=["-"], sources=["-"], source_starts=[0])
    (shape,) = site_shapes(loaded.stack, ["residual"])
    create_model(
        repository,
        "corpus",
        "model",
        arrays=[ArraySpec(SITES["residual"], {**shape.sizes, "token": len(tokens)})],
        tokens=tokens.coordinates(),
        attributes={
            "n_blocks": loaded.stack.n_blocks,
            "width": loaded.stack.width,
            "causal": loaded.stack.causal,
        },
        codec=codec,
    )
    writer = reserve_step(repository, "corpus/model", 0, identity={"step": 0})
    assert not isinstance(writer, AlreadyStored)
    with writer:
        blocks = capture(loaded, tokens, writer.sites, block_rows=writer.chunk_rows)
        stream(blocks, writer)
        writer.commit(provenance={"source_dtype": loaded.source_dtype})


def naive(loaded: LoadedModel, tokens: Tokens, folder: Path) -> None:
    """Do what most scripts do: pad to the longest, collect hidden states in lists, save them."""
    for layer, rows in enumerate(hidden_states(loaded, tokens)):
        torch.save(rows, folder / f"{layer}.pt")


def hidden_states(loaded: LoadedModel, tokens: Tokens) -> Iterator[torch.Tensor]:
    """Yield the rows (token, dim) of every layer, collected in lists over padded batches."""
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


CONTENDERS: Mapping[str, Contender] = {
    "bare": bare,
    "captured": captured,
    "fast": fast,
    "stored": stored,
    "naive": naive,
}


def main(n_sequences: int) -> None:
    """Write the MiB resident with the model, and the peak after a capture, as JSON."""
    loaded, tokens = load(), text(n_sequences)
    # Once over a little text: what torch itself allocates for a batch is not of the corpus.
    before = _peak_mib()
    captured(loaded, tokens, Path())
    sys.stdout.write(json.dumps([before, _peak_mib()]))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]))
