"""The tokenizer of a checkpoint, read without its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.capture.checkpoints import Checkpoint
from flows.capture.errors import TokenizerError
from flows.capture.fetching import with_metadata
from flows.capture.integrity import tokenizer_files
from flows.capture.quiet import first_line, quiet

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    """Read the tokenizer that lies beside a checkpoint's weights.

    Raises:
        TokenizerError: If there is none, or it cannot be read.
    """
    directory = with_metadata(checkpoint).directory
    if directory is None or not (checkpoint.gguf or tokenizer_files(directory)):
        raise TokenizerError(
            f"{checkpoint.source} has no tokenizer: expected tokenizer.json or its like in "
            f"{directory or 'a folder'}; copy it there, or use a corpus of token ids"
        )
    from transformers import AutoTokenizer

    try:
        with quiet():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                directory,
                trust_remote_code=checkpoint.trusted,
                local_files_only=True,
                **({"gguf_file": checkpoint.gguf} if checkpoint.gguf else {}),
            )
    except Exception as error:
        raise TokenizerError(
            f"the tokenizer in {directory} cannot be read: {first_line(error)}"
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        # transformers builds a bare tokenizer of the model's class when the vocabulary that
        # this class needs is not there.
        raise TokenizerError(
            f"the tokenizer in {directory} knows {len(tokenizer)} tokens, all of them special: "
            f"its vocabulary is missing; expected the files of {type(tokenizer).__name__}"
        )
    return tokenizer
