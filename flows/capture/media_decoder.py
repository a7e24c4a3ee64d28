"""The decoder of a model that hears: where its blocks are, and the tokens that it is shown.

A corpus of sounds has no text, so that the decoder is shown what generation begins with, the same
for every sound: its start token, then the language and task tokens that the config of generation
forces, or else its own config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from flows.capture.configs import decoder_start_id
from flows.capture.errors import StructureError
from flows.capture.probe import Probe, token_ids
from flows.capture.running import run
from flows.capture.stack import Stack
from flows.capture.structure import Search, find_stack


def prompt_of(config: PreTrainedConfig) -> tuple[int, ...]:
    """Return the ids that a decoder is shown: its start token, and those forced right after it.

    Args:
        config: Whose ``forced_decoder_ids``, where it has any, are pairs of a position and an id;
            they count as far as none is missing.

    Raises:
        StructureError: If one is no id of the vocabulary.
    """
    prompt = [decoder_start_id(config)]
    forced = dict(getattr(config, "forced_decoder_ids", None) or ())
    while isinstance(forced.get(len(prompt)), int):
        prompt.append(forced[len(prompt)])
    outside = [token for token in prompt if not 0 <= token < config.vocab_size]
    if outside:
        raise StructureError(
            f"the config of a {config.model_type} lets its decoder begin with token {outside[0]}:"
            f" expected ids of its vocabulary, 0 to {config.vocab_size - 1}; correct"
            " decoder_start_token_id and forced_decoder_ids in it"
        )
    return tuple(prompt)


def find_decoder(
    model: PreTrainedModel, heard: Mapping[str, Tensor], paths: Sequence[str]
) -> Stack:
    """Find the decoder of a model of sounds.

    Args:
        model: The whole model, which is what is run.
        heard: What a few sounds look like to it, the first of which is shown.
        paths: Names of its list of blocks, for a model where it cannot be found.

    Raises:
        StructureError: If no list of blocks, or more than one, fits; it says what was found.
    """
    search = Search(model, model.get_decoder(), _probe(model, heard), model.config.decoder_layers)
    found = find_stack(search, paths)
    return replace(found, name="decoder", predicts=None, prompt=prompt_of(model.config))


def _probe(model: PreTrainedModel, heard: Mapping[str, Tensor]) -> Probe:
    """Return the probe of a decoder whose encoder always hears the same."""

    def probe(sequences: Sequence[Sequence[int]]) -> object:
        same = {name: value[[0] * len(sequences)] for name, value in heard.items()}
        return run(model, {**same, "decoder_input_ids": token_ids(model, sequences)})

    return probe
