"""Taking in activations that other tools have dumped as tensors."""

from .intake import Imported, import_tensors
from .table import LabelledTensor, labels_of, read_labels, read_tokens

__all__ = [
    "Imported",
    "LabelledTensor",
    "import_tensors",
    "labels_of",
    "read_labels",
    "read_tokens",
]
