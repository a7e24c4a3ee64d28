"""The models that studies are about: the papers' by their Hub ids, and those of no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from flows.capture.random_sources import BLOCK_PREFIX, BlockSettings, block_name
from flows.demo.stages import DECODER, ENCODER
from flows.studies.untrained import UNTRAINED

Need: TypeAlias = Literal[
    "encoder",
    "decoder",
    "both",
    "trajectory",
    "block",
    "words",
    "characters",
    "vision",
    "speech",
    "convolution",
]
TINY_STEPS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128)
"""Steps of the runs that are made on the spot: a quarter of a minute of CPU each."""

Modality: TypeAlias = Literal["text", "ids", "image", "audio"]


@dataclass(frozen=True)
class TinyRun:
    """A training run that is made on the spot, of ``TINY_STEPS``.

    Attributes:
        family: ``neox`` or ``bert``.
        seed: Seed of weights and batches.
        of_bytes: Whether it reads bytes rather than pieces of words.
    """

    family: Literal["neox", "bert"]
    seed: int = 0
    of_bytes: bool = False


@dataclass(frozen=True)
class ModelSource:
    """A model that a study needs, and where it is had from.

    Attributes:
        name: Name of the model in the store.
        need: What it is looked at for: an encoder, a decoder, a model with one stack of each, a
            training run, a single untrained block, a reader of words or of characters, or a model
            of pictures or sounds, or one of convolutions.
        sources: What `actlas ingest` takes, one a checkpoint or one for all; empty for the models
            of the demo, which lie in packages, and for what is trained on the spot.
        steps: Training steps; of a block, its seeds.
        modality: What kind of corpus it reads.
        run: How it is trained on the spot, None if it is not.
        stack: The one of its stacks that is looked at, None for all.
    """

    name: str
    need: Need
    sources: tuple[str, ...] = ()
    steps: tuple[int, ...] = (0,)
    modality: Modality = "text"
    run: TinyRun | None = None
    stack: str | None = None

    @property
    def label(self) -> str:
        """What it is called among the models of a corpus: ``id/encoder`` for one stack."""
        return "/".join(filter(None, (self.name, self.stack)))


BLOCK_SEEDS: Final = (0, 1, 2)
BLOCK_VOCABULARY: Final = 2048
"""Embeddings that are drawn, instead of tens of thousands: rows as random, and faster made."""

_BIASES: Final = (0, 0.5, 1, 2, 4, 8, 16, 24, 32)
_SCALES: Final = (8, 32)
_SCALED_BIASES: Final = (1, 4)
_BIAS_DEVIATION: Final = 0.1


def block_sweep(config: str) -> tuple[ModelSource, ...]:
    """Return the single blocks of a config over which its settings are swept.

    The common bias is swept with the weights as drawn, and again a few of them with queries and
    keys scaled, or with biases drawn.

    Args:
        config: Model type of `transformers`, or a folder with a config.
    """
    settings = [BlockSettings(common_bias=bias) for bias in _BIASES]
    for bias in _SCALED_BIASES:
        settings += [BlockSettings(bias, query_key_scale=scale) for scale in _SCALES]
        settings.append(BlockSettings(bias, bias_std=_BIAS_DEVIATION))
    return tuple(_block(config, each) for each in settings)


def _block(config: str, settings: BlockSettings) -> ModelSource:
    listed = ",".join(f"{key}={value:g}" for key, value in settings.attributes().items())
    sources = tuple(
        f"{BLOCK_PREFIX}{config}:{listed},vocab_size={BLOCK_VOCABULARY}@{seed}"
        for seed in BLOCK_SEEDS
    )
    name = block_name(config.rstrip("/").rpartition("/")[2], settings)
    return ModelSource(name, "block", sources, BLOCK_SEEDS, "ids")


def _pretrained(repository: str, need: Need) -> ModelSource:
    modality = _MODALITIES.get(need, "text")
    sources = (f"{repository}@main=0",)
    return ModelSource(repository, need, sources, modality=modality, stack=_STACKS.get(repository))


def _revisions(repository: str, revision: str, steps: tuple[int, ...]) -> ModelSource:
    """Return a training run whose steps are revisions of one repository."""
    names = tuple(f"{repository}@{revision.format(step)}={step}" for step in steps)
    return ModelSource(repository, "trajectory", names, steps)


def _repositories(name: str, of_steps: dict[int, str]) -> ModelSource:
    """Return a training run whose steps are repositories of their own."""
    names = tuple(f"{repository}@main={step}" for step, repository in of_steps.items())
    return ModelSource(name, "trajectory", names, tuple(of_steps))


def _tiny(run: TinyRun) -> ModelSource:
    return ModelSource(_tiny_name(run), "trajectory", steps=TINY_STEPS, run=run)


def _tiny_at_its_end(run: TinyRun) -> ModelSource:
    need: Need = "characters" if run.of_bytes else "words"
    return ModelSource(_tiny_name(run), need, steps=TINY_STEPS[-1:], run=run)


def _tiny_name(run: TinyRun) -> str:
    return f"{run.family}{'-bytes' if run.of_bytes else ''}-seed{run.seed}"


_MODALITIES: Final[dict[Need, Modality]] = {
    "vision": "image",
    "convolution": "image",
    "speech": "audio",
}

_STACKS: Final = {"untrained-whisper": "encoder", "openai/whisper-base": "encoder"}
"""Models of which one stack is looked at: a decoder that hears has few rows, all alike at first."""

_FAMILIES: Final[tuple[Literal["neox", "bert"], ...]] = ("neox", "bert")

OFFLINE: Final = (
    ModelSource(ENCODER, "encoder"),
    ModelSource(DECODER, "decoder"),
    *(
        ModelSource(
            name,
            model.need,
            modality=_MODALITIES.get(model.need, "text"),
            stack=_STACKS.get(name),
        )
        for name, model in UNTRAINED.items()
    ),
    *(_tiny(TinyRun("neox", seed)) for seed in range(3)),
    *(_tiny(TinyRun("bert", seed)) for seed in range(2)),
    *(
        _tiny_at_its_end(TinyRun(family, of_bytes=of_bytes))
        for family in _FAMILIES
        for of_bytes in (False, True)
    ),
    *block_sweep("bert"),
)

_PYTHIA_STEPS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 4000, 8000, 16000)
_PYTHIA_LATE_STEPS: Final = (32000, 64000, 128000, 143000)
_BLOOM_STEPS: Final = (1000, 10000, 100000, 200000, 300000, 400000, 500000, 600000)
_MULTIBERT_STEPS: Final = (0, 20, 40, 60, 80, 100, 200, 400, 600, 1000, 1400, 2000)

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
    *(
        _repositories(
            f"multiberts-seed_{seed}",
            {
                1000 * step: f"google/multiberts-seed_{seed}-step_{step}k"
                for step in _MULTIBERT_STEPS
            },
        )
        for seed in range(3)
    ),
    _pretrained("google-bert/bert-base-multilingual-cased", "words"),
    _pretrained("google/mt5-small", "words"),
    _pretrained("google/canine-c", "characters"),
    _pretrained("google/canine-s", "characters"),
    _pretrained("google/byt5-small", "characters"),
    _pretrained("google/vit-base-patch16-224", "vision"),
    _pretrained("microsoft/beit-base-patch16-224", "vision"),
    _pretrained("nvidia/mit-b0", "vision"),
    _pretrained("facebook/wav2vec2-base", "speech"),
    _pretrained("facebook/hubert-base-ls960", "speech"),
    _pretrained("openai/whisper-base", "speech"),
    _pretrained("microsoft/resnet-50", "convolution"),
    _pretrained("facebook/convnext-tiny-224", "convolution"),
    *block_sweep("bert"),
)

MODEL_SETS: Final = {"offline": OFFLINE, "paper": PAPER}
"""Sets of models by the name that ``--models`` takes."""
