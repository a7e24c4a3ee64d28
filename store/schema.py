"""Names, dimensions, dtypes and attributes of everything the store holds, declared once.

The same declarations create arrays, validate them when a store is opened, annotate the
xarray objects handed out and document the format (``docs/STORE_FORMAT.md``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .errors import InvalidNameError

FORMAT_VERSION: Final = 3
"""Version of the layout described in docs/STORE_FORMAT.md; a reader refuses a newer one."""

FIRST_FORMAT: Final = 1
"""Version of a store in which nothing of the below has happened, so that all readers read it."""

GROWN_FORMAT: Final = 2
"""Version of a store in which a corpus, and the token axis of its models, has grown."""

LAYERED_FORMAT: Final = 3
"""Version of a store in which steps of a model hold different layers."""

FORMAT_ATTRIBUTE: Final = "actlas_format"
"""Attribute of the root group that marks a repository as an activation store."""

# Dimensions -----------------------------------------------------------------------------
MODEL: Final = "model"
STEP: Final = "step"
LAYER: Final = "layer"
BLOCK: Final = "block"
HEAD: Final = "head"
KEY_VALUE_HEAD: Final = "key_value_head"
TOKEN: Final = "token"
DIM: Final = "dim"
HEAD_DIM: Final = "head_dim"
KEY_POSITION: Final = "key_position"
TOKEN_CHUNK: Final = "token_chunk"
TEXT: Final = "text"
SOURCE: Final = "source"
ITEM: Final = "item"
BYTE: Final = "byte"
CORPUS_TOKEN: Final = "corpus_token"
"""How ``token`` is called on the node of a corpus of ids: its models may hold fewer tokens."""

POPULATION: Final = "population"
COMPONENT: Final = "component"
SCALE: Final = "scale"
DECIMATION: Final = "decimation"
FREQUENCY: Final = "frequency"
ORDER: Final = "order"
TOKEN_POSITION: Final = "token_position"
"""Position in the sequence, as a dimension of results."""

OTHER: Final = "other_"
"""What comes before the name of the second dimension of values about pairs, as ``other_layer``."""
OTHER_MODEL: Final = OTHER + MODEL
OTHER_STEP: Final = OTHER + STEP
OTHER_LAYER: Final = OTHER + LAYER

METRICS_GROUP: Final = "metrics"
"""Name of the child group of a model (or of one of its stacks) that holds metric results."""

ENCODER_DECODER: Final = ("encoder", "decoder")

STAGES: Final = ("stage1", "stage2", "stage3", "stage4", "stage5", "stage6")

STACKS: Final = (*ENCODER_DECODER, "vision", "text", *STAGES)
"""Child groups of a model that has more than one stack of blocks, each like a model group.

The stages of a model that coarsens its map on the way differ in width and in tokens, so that each
is a stack."""


@dataclass(frozen=True)
class Variable:
    """One array of the store: its name, dimensions, dtype on disk and meaning.

    Attributes:
        name: Name of the array inside its group.
        dims: Dimension names, outermost first.
        dtype: NumPy dtype name, or ``"str"`` for UTF-8 strings of any length.
        description: One sentence, written to the array as ``long_name``.
        units: Physical or conventional unit, empty when there is none.
        first_position: Position in the sequence before which it is NaN by definition.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str
    description: str
    units: str = ""
    first_position: int = 0


def _named(*variables: Variable) -> dict[str, Variable]:
    return {variable.name: variable for variable in variables}


PROBABILITIES: Final = "attention_probability"

# Activations ----------------------------------------------------------------------------
# One array a site; rows of padding are never stored; float32 whatever the source dtype.
SITES: Final[dict[str, Variable]] = _named(
    Variable(
        "residual",
        (STEP, LAYER, TOKEN, DIM),
        "float32",
        "residual stream: layer 0 is the embedding output, layer l the raw output of block l",
    ),
    Variable(
        "final_norm",
        (STEP, TOKEN, DIM),
        "float32",
        "output of the final norm, applied to the output of the last block",
    ),
    Variable(
        "attention_output",
        (STEP, BLOCK, TOKEN, DIM),
        "float32",
        "output of the attention sublayer, before it is added to the residual stream",
    ),
    Variable(
        "mlp_output",
        (STEP, BLOCK, TOKEN, DIM),
        "float32",
        "output of the feed-forward sublayer, before it is added to the residual stream",
    ),
    Variable(
        "query",
        (STEP, BLOCK, HEAD, TOKEN, HEAD_DIM),
        "float32",
        "queries before any rotary embedding",
    ),
    Variable(
        "key",
        (STEP, BLOCK, KEY_VALUE_HEAD, TOKEN, HEAD_DIM),
        "float32",
        "keys before any rotary embedding",
    ),
    Variable(
        "value",
        (STEP, BLOCK, KEY_VALUE_HEAD, TOKEN, HEAD_DIM),
        "float32",
        "values",
    ),
    Variable(
        "query_rotary",
        (STEP, BLOCK, HEAD, TOKEN, HEAD_DIM),
        "float32",
        "queries after the rotary embedding",
    ),
    Variable(
        "key_rotary",
        (STEP, BLOCK, KEY_VALUE_HEAD, TOKEN, HEAD_DIM),
        "float32",
        "keys after the rotary embedding",
    ),
    Variable(
        "attention_entropy",
        (STEP, BLOCK, HEAD, TOKEN),
        "float32",
        "entropy of the attention row divided by the logarithm of the number of visible keys",
        "1",
    ),
    Variable(
        "attention_max",
        (STEP, BLOCK, HEAD, TOKEN),
        "float32",
        "largest probability of the attention row",
        "1",
    ),
    Variable(
        "attention_logit_deviation",
        (STEP, BLOCK, HEAD, TOKEN),
        "float32",
        "standard deviation of the attention logits over the visible keys of the row",
        "1",
    ),
    Variable(
        "attention_first_key",
        (STEP, BLOCK, HEAD, TOKEN),
        "float32",
        "probability that the attention row gives to the first key of the sequence",
        "1",
    ),
    Variable(
        "attention_received",
        (STEP, BLOCK, HEAD, TOKEN),
        "float32",
        "mean probability that the token is given as a key, over the rows that see it",
        "1",
    ),
    Variable(
        PROBABILITIES,
        (STEP, BLOCK, HEAD, TOKEN, KEY_POSITION),
        "float32",
        "attention probabilities of the row by position of the key, 0 where it is not visible",
        "1",
    ),
    Variable(
        "token_loss",
        (STEP, TOKEN),
        "float32",
        "negative log-likelihood of the token given those before it, NaN for the first one; of"
        " encoders that of each token that was masked, given all that were not, NaN for others",
        "nat",
        first_position=1,
    ),
)

ROW_CHOICE: Final = "row_choice"
"""Attribute of a model's group whose rows are not all tokens: which ones are kept."""

TOKEN_RATE: Final = "token_rate"
"""Attribute of a model whose rows span several tokens each: how many."""

SITES_BY_DEFAULT: Final = "default_sites"
"""Attribute of a model's group: the sites that are stored of it where none are named."""

LAYER_CHOICE: Final = "layer_choice"
"""Attribute of a model's group that holds only some layers: their numbers, as they lie on disk."""

LAYERS_BY_STEP: Final = "layers_by_step"
"""Attribute of a model's group, true where steps, or sites of a step, hold different layers."""

MODULE_PREFIX: Final = "module:"
"""Start of the name of a site that is a module of the model, as ``module:layers.{i}.mlp``."""

MODULE_INDEX: Final = "{i}"
"""Stands for the number of the block in such a name; without it the module is there once."""

CHECKSUM_SUFFIX: Final = "_checksum"
"""``residual_checksum`` (step, layer, token_chunk) holds the CRC-32C of each chunk's raw values."""

# Coordinates ----------------------------------------------------------------------------
TOKEN_COORDINATES: Final[dict[str, Variable]] = _named(
    Variable("sequence", (TOKEN,), "int32", "number of the sequence within the corpus"),
    Variable("position", (TOKEN,), "int32", "position in the sequence from 0, -1 for its mean"),
    Variable("token_id", (TOKEN,), "int32", "id in the model's vocabulary"),
    Variable("document", (TOKEN,), "int32", "number of the corpus text the token was cut from"),
    Variable("char_start", (TOKEN,), "int32", "first character in that text, -1 when unknown"),
    Variable("char_end", (TOKEN,), "int32", "one past the last character, -1 when unknown"),
    Variable("special", (TOKEN,), "bool", "whether the tokenizer added it (BOS, CLS, SEP ...)"),
)

PLACE_COORDINATES: Final[dict[str, Variable]] = _named(
    Variable("row", (TOKEN,), "int32", "row of the patch or map cell, -1 for a special token"),
    Variable("column", (TOKEN,), "int32", "column of the patch or map cell, -1 likewise"),
    Variable(
        "sample_start", (TOKEN,), "int64", "first audio sample it is made from, at the model's rate"
    ),
    Variable("sample_end", (TOKEN,), "int64", "one past the last such sample"),
)
"""Where a token of an image or a sound lies; only the models of such corpora have them."""

STEP_COORDINATES: Final[dict[str, Variable]] = _named(
    Variable("step", (STEP,), "int64", "training step of the checkpoint, -1 for a free slot"),
    Variable("complete", (STEP,), "bool", "whether every requested activation was committed"),
    Variable("sites", (STEP,), "str", "names of the sites stored for the step, space-separated"),
    Variable(
        "site_layers",
        (STEP,),
        "str",
        "JSON object: site to the layers or blocks stored of it, where those are not all",
    ),
    Variable("revision", (STEP,), "str", "revision the checkpoint was read from"),
    Variable("weights_sha256", (STEP,), "str", "SHA-256 over the digests of all weight files"),
    Variable("weight_files", (STEP,), "str", "JSON object: weight file name to its SHA-256"),
    Variable("tokens_sha256", (STEP,), "str", "SHA-256 of the token ids and their sequences"),
    Variable("source_dtype", (STEP,), "str", "dtype the model computed in"),
    Variable("precision", (STEP,), "str", "dtype the values were rounded to, empty if to none"),
    Variable("checkpoint", (STEP,), "str", "where the checkpoint lay when it was run"),
    Variable("n_tokens", (STEP,), "int64", "tokens stored for the step, 0 for the whole axis"),
    Variable(
        "loss",
        (STEP,),
        "float64",
        "mean of token_loss, NaN if it was not captured",
    ),
    Variable("nonfinite", (STEP,), "int64", "number of stored values that are NaN or infinite"),
    Variable("stored_bytes", (STEP,), "int64", "encoded bytes of the step's activations", "B"),
    Variable("identity", (STEP,), "str", "JSON object: everything that changes the values"),
    Variable("versions", (STEP,), "str", "JSON object: versions of the libraries involved"),
    Variable("ingested_at", (STEP,), "str", "time of the commit, ISO 8601 in UTC"),
    Variable("rewritten_at", (STEP,), "str", "time of the latest repair, ISO 8601 in UTC"),
    Variable("reserved_at", (STEP,), "str", "time of the reservation, ISO 8601 in UTC"),
    Variable("writer", (STEP,), "str", "host, process and random id of the writer of the slot"),
)

DEPTH_COORDINATES: Final[dict[str, Variable]] = _named(
    Variable("layer", (LAYER,), "int32", "layer, 0 for the embedding output"),
    Variable("block", (BLOCK,), "int32", "block, from 1: its output is the layer of that number"),
    Variable(
        "relative_depth",
        (LAYER,),
        "float64",
        "blocks passed divided by the number of blocks of the model",
        "1",
    ),
)

CORPUS_VARIABLES: Final[dict[str, Variable]] = _named(
    Variable("text", (TEXT,), "str", "texts of the corpus, one sequence or document each"),
    Variable("text_sha256", (TEXT,), "str", "SHA-256 of the text's UTF-8 bytes"),
    Variable("source", (TEXT,), "str", "file or item the text came from"),
    Variable("source_start", (TEXT,), "int64", "first character of the text in its source"),
    Variable("text_label", (TEXT,), "str", "label of the text, where the corpus has labels"),
)

ITEM_VARIABLES: Final[dict[str, Variable]] = _named(
    Variable("item_name", (ITEM,), "str", "file of the image or sound, or where it came from"),
    Variable("label", (ITEM,), "str", "label of the item, empty where it has none"),
    Variable("item_sha256", (ITEM,), "str", "SHA-256 of the item's bytes"),
    Variable("item_start", (ITEM,), "int64", "first byte of the item in content", "B"),
    Variable("item_stop", (ITEM,), "int64", "one past the last byte of the item in content", "B"),
    Variable("content", (BYTE,), "uint8", "files of all items as they were, one after the other"),
)
"""A corpus of images or sounds keeps the files themselves: models can be run over it anywhere."""

# Metric results -------------------------------------------------------------------------
SOURCE_SUFFIX: Final = "_source"
"""``two_nn_source`` (step, layer, population) holds a row of the table below, -1 for none."""

SOURCE_COLUMNS: Final[dict[str, Variable]] = _named(
    Variable("source_snapshot", (SOURCE,), "str", "snapshot that was read"),
    Variable("source_step", (SOURCE,), "int64", "step that was read"),
    Variable("source_weights_sha256", (SOURCE,), "str", "weights_sha256 of that step"),
    Variable("source_identity_sha256", (SOURCE,), "str", "SHA-256 of all that defines that step"),
    Variable("source_version", (SOURCE,), "int64", "version of the metric's definition"),
    Variable("source_settings", (SOURCE,), "str", "JSON object: seed, sample size and so on"),
    Variable("source_computed_at", (SOURCE,), "str", "time of the commit, ISO 8601 in UTC"),
)

SHARED_WEIGHTS: Final[dict[str, Variable]] = _named(
    Variable("same_weights", (STEP,), "str", "other steps with the same weights"),
    Variable("shared_weights", (STEP,), "str", "other steps with a weight file in common"),
)
"""Coordinates of metric results that are found by their digests, and are not stored."""


def unit_dimension(module: str) -> str:
    """Return the name of the dimension of a module's outputs: modules differ in width."""
    return f"{module}_unit"


def site_variable(name: str) -> Variable:
    """Return the declaration of a site: one of :data:`SITES`, or a module of the model.

    Raises:
        KeyError: If there is no such site.
    """
    if not is_module_site(name):
        return SITES[name]
    depth = (BLOCK,) if MODULE_INDEX in name else ()
    dims = (STEP, *depth, TOKEN, unit_dimension(name))
    return Variable(name, dims, "float32", f"output of {name.removeprefix(MODULE_PREFIX)}")


def is_site(name: str) -> bool:
    """Return whether a name is that of a site."""
    return name in SITES or is_module_site(name)


def is_module_site(name: str) -> bool:
    """Return whether a name is that of a module whose outputs are a site."""
    return name.startswith(MODULE_PREFIX) and not name.endswith((CHECKSUM_SUFFIX, SOURCE_SUFFIX))


def depth_dimension(site: str) -> str | None:
    """Return the name of the dimension along which a site has layers or blocks, None without."""
    return next((name for name in site_variable(site).dims if name in (LAYER, BLOCK)), None)


def sites_among(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sites among the names of arrays, those of :data:`SITES` first, in their order."""
    there = set(names)
    modules = sorted(name for name in there if is_module_site(name))
    return (*(name for name in SITES if name in there), *modules)


def checksum_variable(site: Variable) -> Variable:
    """Describe the array that records the checksum of every chunk of a site.

    Args:
        site: A variable with the dimensions (step, ..., token, ...).

    Returns:
        The variable (step, [layer or block,] token_chunk) of CRC-32C values.
    """
    depth = tuple(name for name in site.dims if name in (LAYER, BLOCK))
    return Variable(
        site.name + CHECKSUM_SUFFIX,
        (STEP, *depth, TOKEN_CHUNK),
        "uint32",
        f"CRC-32C of the raw little-endian values of each chunk of {site.name}",
    )


def node_name(model: str) -> str:
    """Return the group name of a model id: ``EleutherAI/pythia-70m`` → ``EleutherAI--pythia-70m``.

    Raises:
        InvalidNameError: If the id is empty or would not be one plain path segment.
    """
    name = model.strip().strip("/").replace("/", "--")
    if not name or name in (".", "..") or name == METRICS_GROUP or name.startswith("__"):
        raise InvalidNameError(
            f"{model!r} cannot name a corpus or a model: expected a name, or OWNER/NAME for a"
            f" model, other than '.', '..' and {METRICS_GROUP!r}"
        )
    return name
