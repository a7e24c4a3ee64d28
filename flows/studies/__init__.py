"""Studies: each experiment of the two papers as one command, from the store."""

from __future__ import annotations

from typing import Final

from flows.studies.block import UNTRAINED_BLOCK
from flows.studies.characters import CHARACTERS
from flows.studies.depth import ANISOTROPY_TEXT, DRIFT, ENCODER_DECODER
from flows.studies.heads import QUERIES_KEYS, SHARPNESS
from flows.studies.modalities import MODALITIES
from flows.studies.study import Study
from flows.studies.training import INTRINSIC_DIMENSION, SHAPE_OF_LEARNING, TRAINING_DYNAMICS

STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (
        SHAPE_OF_LEARNING,
        TRAINING_DYNAMICS,
        INTRINSIC_DIMENSION,
        ANISOTROPY_TEXT,
        CHARACTERS,
        MODALITIES,
        DRIFT,
        ENCODER_DECODER,
        UNTRAINED_BLOCK,
        SHARPNESS,
        QUERIES_KEYS,
    )
}
"""All studies by the name that is typed."""

__all__ = ["STUDIES", "Study"]
