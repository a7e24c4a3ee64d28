"""The config of a checkpoint: what kind of model it is, and the longest input it takes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from flows.capture.checkpoints import Checkpoint
from flows.capture.errors import CheckpointError, UnknownEntryError, UnknownModelError
from flows.capture.fetching import with_metadata
from flows.capture.generation import forced_entries
from flows.capture.quiet import first_line, quiet
from flows.capture.random_sources import RandomWeights

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

_PADDING_SHIFTS_POSITIONS: Final = frozenset(
    {"camembert", "data2vec-text", "esm", "longformer", "mpnet", "roberta", "roberta-prelayernorm"}
    | {"xlm-roberta", "xlm-roberta-xl", "xmod"}
)
"""Model types that number positions from the padding id + 1, so that the first ones are lost."""

_NO_LIMIT: Final = 10**9
"""Tokenizers without a limit announce some larger number as theirs."""


def load_config(checkpoint: Checkpoint) -> PreTrainedConfig:
    """Read the config of a checkpoint, with the overrides of an untrained one.

    Raises:
        CheckpointError: If `transformers` does not know the model, or an override is not an
            entry of its config.
    """
    from transformers import AutoConfig

    random = checkpoint.random
    try:
        with quiet():
            if random is not None and random.model_type is not None:
                _check_overrides(AutoConfig.for_model(random.model_type), random)
                return AutoConfig.for_model(random.model_type, **dict(random.overrides))
            directory = with_metadata(checkpoint).directory
            assert directory is not None
            config = AutoConfig.from_pretrained(
                directory,
                trust_remote_code=checkpoint.trusted,
                local_files_only=True,
                **({"gguf_file": checkpoint.gguf} if checkpoint.gguf else {}),
            )
            config.update(dict(forced_entries(directory)))
            return config if random is None else _overridden(config, random)
    except CheckpointError:
        raise
    except Exception as error:
        raise _config_problem(checkpoint, error) from error


def longest_input(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase | None = None
) -> int | None:
    """Return the largest number of tokens a model takes at once, None if it has no limit."""
    text = config.get_text_config()
    limits = [int(getattr(text, "max_position_embeddings", None) or _NO_LIMIT)]
    if config.model_type in _PADDING_SHIFTS_POSITIONS:
        limits[0] -= int(getattr(text, "pad_token_id", None) or 0) + 1
    if tokenizer is not None:
        limits.append(int(tokenizer.model_max_length))
    limit = min(limits)
    return limit if 0 < limit < _NO_LIMIT else None


def decoder_start_id(config: PreTrainedConfig) -> int:
    """Return the id that the decoder of an encoder-decoder starts with."""
    start = getattr(config, "decoder_start_token_id", None)
    return int(config.pad_token_id if start is None else start)


def _check_overrides(config: PreTrainedConfig, random: RandomWeights) -> None:
    known = set(config.to_dict()) | set(config.attribute_map)
    for name, _ in random.overrides:
        if name not in known:
            raise UnknownEntryError(
                f"the config of {config.model_type} has no entry {name!r}{_near(name, known)}"
            )


def _overridden(config: PreTrainedConfig, random: RandomWeights) -> PreTrainedConfig:
    _check_overrides(config, random)
    entries = {**config.to_dict(), **dict(random.overrides)}
    # One entry a layer: derived anew, for another number of layers.
    entries.pop("layer_types", None)
    return type(config).from_dict(entries)


def _config_problem(checkpoint: Checkpoint, error: Exception) -> CheckpointError:
    from transformers import CONFIG_MAPPING

    random = checkpoint.random
    if random is not None and random.model_type not in (None, *CONFIG_MAPPING):
        name = random.model_type
        near = _near(str(name), CONFIG_MAPPING)
        return UnknownModelError(
            f"{checkpoint.source}: {name!r} is neither a folder nor a known model type{near}"
        )
    if "trust_remote_code" in str(error):
        return CheckpointError(
            f"{checkpoint.source} needs Python code that comes with it, which is not run unless "
            "asked for: read the code, then allow it with --trust-remote-code, or expect a model "
            "that transformers knows"
        )
    return CheckpointError(f"the config of {checkpoint.source} cannot be used: {first_line(error)}")


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
