"""What makes two checkpoints the same: digests of the files that decide the values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flows.capture.checkpoints import Checkpoint
from flows.capture.digests import Digest
from flows.capture.fetching import with_metadata
from flows.capture.generation import forced_entries
from flows.capture.hub import weight_digests
from flows.capture.integrity import (
    CONFIG_FILE,
    check_config,
    check_gguf,
    code_files,
    file_sha256,
    read_json,
    tokenizer_files,
    weight_files,
)

_IRRELEVANT_CONFIG: Final = frozenset({"_name_or_path", "architectures", "transformers_version"})


@dataclass(frozen=True)
class Fingerprint:
    """Digests that identify a checkpoint, whatever it is called.

    Attributes:
        weights_sha256: SHA-256 over the names and digests of all weight files.
        files: SHA-256 of each weight file by name.
        config_sha256: SHA-256 of the config entries that may change what the model computes, of
            what its decoder is made to begin with, and of the code that comes with it, where that
            is trusted.
        tokenizer_sha256: SHA-256 over the tokenizer's files, None without a tokenizer.
    """

    weights_sha256: str
    files: Mapping[str, str]
    config_sha256: str
    tokenizer_sha256: str | None


def fingerprint(checkpoint: Checkpoint, *, digest: Digest = file_sha256) -> Fingerprint:
    """Digest a checkpoint, after a check that its files are whole.

    Args:
        checkpoint: Which one.
        digest: What gives the SHA-256 of a file; a `DigestCache` where polls repeat it.

    Raises:
        CheckpointError: If a file is missing or damaged.
    """
    if checkpoint.random is not None:
        return _random_fingerprint(checkpoint)
    directory = with_metadata(checkpoint).directory
    assert directory is not None
    if checkpoint.gguf is not None:
        whole = digest(check_gguf(directory / checkpoint.gguf))
        files = {checkpoint.gguf: whole}
        return Fingerprint(_joined(files), files, whole, whole)
    check_config(directory)
    if checkpoint.hub is not None:
        files = weight_digests(checkpoint.hub)
    else:
        files = {file.name: digest(file) for file in weight_files(directory)}
    return Fingerprint(
        weights_sha256=_joined(files),
        files=files,
        config_sha256=_config_and_code(checkpoint, directory, digest),
        tokenizer_sha256=_tokenizer_sha256(directory, digest),
    )


def _random_fingerprint(checkpoint: Checkpoint) -> Fingerprint:
    # Only drawing the weights tells what they are, since generators differ between versions.
    from flows.capture.untrained import draw_model, state_sha256

    model = draw_model(checkpoint)
    if checkpoint.random is not None and checkpoint.random.block is not None:
        from flows.capture.structure import find_stacks
        from flows.capture.untrained_block import set_up_block

        set_up_block(model, find_stacks(model), checkpoint.random.block, checkpoint.random.seed)
    digest = state_sha256(model)
    directory = with_metadata(checkpoint).directory
    return Fingerprint(
        weights_sha256=_joined({"random": digest}),
        files={"random": digest},
        config_sha256=_config_sha256(model.config.to_dict()),
        tokenizer_sha256=_tokenizer_sha256(directory, file_sha256) if directory else None,
    )


def _tokenizer_sha256(directory: Path, digest: Digest) -> str | None:
    files = {file.name: digest(file) for file in tokenizer_files(directory)}
    return _joined(files) if files else None


def _config_and_code(checkpoint: Checkpoint, directory: Path, digest: Digest) -> str:
    entries = {**read_json(directory / CONFIG_FILE), **forced_entries(directory)}
    config = _config_sha256(entries)
    code = code_files(directory) if checkpoint.trusted else []
    if not code:
        return config
    return _joined({CONFIG_FILE: config} | {file.name: digest(file) for file in code})


def _config_sha256(config: Mapping[str, object]) -> str:
    kept = {key: value for key, value in config.items() if key not in _IRRELEVANT_CONFIG}
    text = json.dumps(kept, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _joined(digests: Mapping[str, str]) -> str:
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
