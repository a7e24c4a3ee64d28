"""Reads models and runs them; finding, cutting and digesting need no torch."""

from flows.capture.checkpoints import Checkpoint, find_checkpoints
from flows.capture.configs import load_config, longest_input
from flows.capture.errors import CaptureError
from flows.capture.fingerprints import Fingerprint, fingerprint
from flows.capture.inputs import Cut, cut_characters, from_ids, tokenize
from flows.capture.tokenizer import load_tokenizer
from flows.capture.tokens import Tokens

__all__ = [
    "CaptureError",
    "Checkpoint",
    "Cut",
    "Fingerprint",
    "Tokens",
    "cut_characters",
    "find_checkpoints",
    "fingerprint",
    "from_ids",
    "load_config",
    "load_tokenizer",
    "longest_input",
    "tokenize",
]
