"""What `random:` and `block:` sources ask for: models whose weights are drawn."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from typing import Final

from flows.capture.errors import CheckpointError

RANDOM_PREFIX: Final = "random:"
BLOCK_PREFIX: Final = "block:"

Scalar = int | float | str | bool

_DEPTH: Final = "num_hidden_layers"


@dataclass(frozen=True)
class BlockSettings:
    """How a single untrained block is set up.

    Attributes:
        common_bias: Norm of a vector of random direction, one for all rows, added to its inputs.
        query_key_scale: Factor of the weights of its queries and of its keys.
        bias_std: Standard deviation of the biases of its linear maps; 0 leaves them as the model
            initialises them.
    """

    common_bias: float = 0.0
    query_key_scale: float = 1.0
    bias_std: float = 0.0

    def attributes(self) -> dict[str, float]:
        """Return the settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class RandomWeights:
    """Weights that are drawn rather than read.

    Attributes:
        model_type: Model type of `transformers` whose default config is taken, or None when
            the config lies in the checkpoint's directory or on the Hub.
        overrides: Entries of the config that are replaced, as (name, value) pairs.
        seed: Seed of the draw.
        block: Settings of a single block that is fed embeddings as they are; None for a model.
    """

    model_type: str | None
    overrides: tuple[tuple[str, Scalar], ...]
    seed: int
    block: BlockSettings | None = None


def parse_random(source: str, seed: int) -> tuple[str, RandomWeights]:
    """Take ``random:CONFIG[:key=value,...][@SEED]`` or ``block:CONFIG...`` apart.

    Args:
        source: What the user named.
        seed: Seed where the source names none.

    Returns:
        What was given as CONFIG, and the weights as if it were a model type.

    Raises:
        CheckpointError: If an entry is not ``key=value``, or a setting of a block not a number.
    """
    prefix = RANDOM_PREFIX if source.startswith(RANDOM_PREFIX) else BLOCK_PREFIX
    text = source.removeprefix(prefix)
    match = re.fullmatch(r"(?P<rest>.*?)(@(?P<seed>\d+))?", text, re.DOTALL)
    rest, own_seed = (match["rest"], match["seed"]) if match else (text, None)
    config, _, listed = rest.partition(":") if "=" in rest else (rest, "", "")
    entries = []
    for entry in filter(None, listed.split(",")):
        key, equals, value = entry.partition("=")
        if not (key and equals and value):
            raise CheckpointError(f"{source}: {entry!r} is not an override, expected key=value")
        entries.append((key.strip(), _scalar(value.strip())))
    drawn = seed if own_seed is None else int(own_seed)
    if prefix == RANDOM_PREFIX:
        return config, RandomWeights(config, tuple(entries), drawn)
    settings, overrides = _block_settings(source, entries)
    return config, RandomWeights(config, (*overrides, (_DEPTH, 1)), drawn, settings)


def random_source(config: str, weights: RandomWeights) -> str:
    """Return the source that :func:`parse_random` takes apart into this config and these weights.

    Args:
        config: A model type, the folder of a config, or a revision on the Hub that has one.
        weights: How weights are drawn.
    """
    entries = list(weights.overrides)
    prefix = RANDOM_PREFIX
    if weights.block is not None:
        prefix = BLOCK_PREFIX
        entries = [*weights.block.attributes().items(), *entries[:-1]]
    listed = ",".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in entries
    )
    return f"{prefix}{config}{listed and ':' + listed}@{weights.seed}"


def block_name(config: str, settings: BlockSettings) -> str:
    """Return the name of a block: its config, and the settings that are not the usual ones."""
    usual = BlockSettings().attributes()
    told = {key: value for key, value in settings.attributes().items() if value != usual[key]}
    return "-".join(["block", config, *(f"{key}={value:g}" for key, value in told.items())])


def _block_settings(
    source: str, entries: list[tuple[str, Scalar]]
) -> tuple[BlockSettings, list[tuple[str, Scalar]]]:
    """Tell the settings of a block from the entries of its config."""
    own = BlockSettings().attributes()
    chosen: dict[str, float] = {}
    for key, value in entries:
        if key not in own:
            continue
        number = math.nan if isinstance(value, bool | str) else float(value)
        if not (math.isfinite(number) and number >= 0):
            raise CheckpointError(f"{source}: {key}={value}, expected a number from 0")
        chosen[key] = number
    return BlockSettings(**chosen), [(key, value) for key, value in entries if key not in own]


def _scalar(text: str) -> Scalar:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | str | bool) else text
