"""The models that studies are about: the papers' by their Hub ids, and those of no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from flows.demo.stages import DECODER, ENCODER
from flows.demo.trajectory import MODEL as TINY
from flows.demo.trajectory import STEPS as TINY_STEPS

Need: TypeAlias = Literal["encoder", "decoder", "both", "trajectory"]


@dataclass(frozen=True)
class ModelSource:
    """A model that a study needs, and where it is had from.

    Attributes:
        name: Name of the model in the store.
        need: What it is looked at for: an encoder, a decoder, a model with one stack of each, or
            a training run.
        sources: What `actlas ingest` takes, one a checkpoint or one for all; empty for the models
            of the demo, which lie in packages or are trained on the spot.
        steps: Training steps.
    """

    name: str
    need: Need
    sources: tuple[str, ...] = ()
    steps: tuple[int, ...] = (0,)


def _pretrained(repository: str, need: Need) -> ModelSource:
    return ModelSource(repository, need, (f"{repository}@main=0",))


def _revisions(repository: str, revision: str, steps: tuple[int, ...]) -> ModelSource:
    """Return a training run whose steps are revisions of one repository."""
    names = tuple(f"{repository}@{revision.format(step)}={step}" for step in steps)
    return ModelSource(repository, "trajectory", names, steps)


def _repositories(name: str, of_steps: dict[int, str]) -> ModelSource:
    """Return a training run whose steps are repositories of their own."""
    names = tuple(f"{repository}@main={step}" for step, repository in of_steps.items())
    return ModelSource(name, "trajectory", names, tuple(of_steps))


OFFLINE: Final = (
    ModelSource(ENCODER, "encoder"),
    ModelSource(DECODER, "decoder"),
    ModelSource(TINY, "trajectory", steps=TINY_STEPS),
)

_PYTHIA_STEPS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 4000, 8000, 16000)
_PYTHIA_LATE_STEPS: Final = (32000, 64000, 128000, 143000)
_BLOOM_STEPS: Final = (1000, 10000, 100000, 200000, 300000, 400000, 500000, 600000)

PAPER: Final = (
    _pretrained("google-bert/bert-base-uncased", "encoder"),
    _pretrained("FacebookAI/roberta-base", "encoder"),
    _pretrained("albert/albert-base-v2", "encoder"),
    _pretrained("openai-community/gpt2", "decoder"),
    _pretrained("facebook/opt-125m", "decoder"),
    _pretrained("EleutherAI/pythia-410m", "decoder"),
    _pretrained("bigscience/bloom-560m", "decoder"),
    _pretrained("google-t5/t5-base", "both"),
    _revisions("EleutherAI/pythia-160m", "step{}", _PYTHIA_STEPS + _PYTHIA_LATE_STEPS),
    _revisions("bigscience/bloom-560m-intermediate", "global_step{}", _BLOOM_STEPS),
    _repositories(
        "TinyLlama-1.1B",
        {
            50_000: "TinyLlama/TinyLlama-1.1B-step-50K-105b",
            240_000: "TinyLlama/TinyLlama-1.1B-intermediate-step-240k-503b",
            480_000: "TinyLlama/TinyLlama-1.1B-intermediate-step-480k-1T",
            715_000: "TinyLlama/TinyLlama-1.1B-intermediate-step-715k-1.5T",
            955_000: "TinyLlama/TinyLlama-1.1B-intermediate-step-955k-token-2T",
            1_195_000: "TinyLlama/TinyLlama-1.1B-intermediate-step-1195k-token-2.5T",
            1_431_000: "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
        },
    ),
    _repositories(
        "multiberts-seed_0",
        {
            1000 * step: f"google/multiberts-seed_0-step_{step}k"
            for step in (0, 20, 40, 60, 80, 100, 200, 400, 600, 1000, 1400, 2000)
        },
    ),
)

MODEL_SETS: Final = {"offline": OFFLINE, "paper": PAPER}
"""Sets of models by the name that ``--models`` takes."""
