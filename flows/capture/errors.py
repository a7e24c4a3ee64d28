"""What can go wrong while a model is read and run, with one root class."""

from __future__ import annotations


class CaptureError(Exception):
    """Root of every error raised by `flows.capture`."""


class CheckpointError(CaptureError):
    """A checkpoint is missing, incomplete, damaged or of an unknown kind."""


class UnknownModelError(CheckpointError):
    """A model was asked for by a name or a folder that there is not."""


class UnknownStepError(CheckpointError):
    """A training step that a source does not have."""


class UnknownEntryError(CheckpointError):
    """An entry of a config was to be replaced that it does not have."""


class TokenizerError(CaptureError):
    """A tokenizer is missing, or does not belong to its model."""


class InputError(CaptureError):
    """The inputs are empty, too short, or not what the model takes."""


class InputChoiceError(InputError):
    """What of an input is meant was not said, or said by a name that it does not have."""


class StructureError(CaptureError):
    """The parts of a model could not be found."""


class UnknownDeviceError(CaptureError):
    """A device was asked for that torch does not know, or that this machine lacks."""


class UnknownSiteError(CaptureError):
    """A site that is not known, or that this model does not have."""


class MemoryShortageError(CaptureError):
    """There is not enough memory to run a single sequence."""


class ReplayError(CaptureError):
    """A sequence that was run alone gave other rows than within a batch."""


class NonFiniteActivationError(CaptureError):
    """A model gave NaN or infinite values where they are not allowed.

    Attributes:
        site: Name of the site.
        layer: Index along the layer or block dimension, None for a site without one.
        rows: Number of rows with at least one such value among those looked at.
    """

    def __init__(self, site: str, layer: int | None, rows: int) -> None:
        super().__init__(site, layer, rows)
        self.site = site
        self.layer = layer
        self.rows = rows

    def __str__(self) -> str:
        where = self.site if self.layer is None else f"{self.site} at index {self.layer}"
        return (
            f"{where} has {self.rows} rows with NaN or infinite values, where finite ones were "
            "expected; look at the weights and the dtype, or pass --allow-nonfinite to store them"
        )
