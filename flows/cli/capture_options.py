"""How a checkpoint is run and what is kept of it: options of ``ingest`` and ``watch``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from flows.capture.rounding import FULL_PRECISION, PRECISIONS, Precision
from flows.cli.options import NameList, NumberList
from store.codec import CODECS, DEFAULT_CODEC, Codec

if TYPE_CHECKING:
    from flows.job import Dtype


def capture_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add what decides how checkpoints are run; the command takes it as one ``options``."""

    @click.option(
        "--sites",
        type=NameList(),
        metavar="A,B",
        help="What to keep; any module as 'module:layers.{i}.mlp.act', {i} for each block's number."
        "  [default: residual, and final_norm where there is one]",
    )
    @click.option(
        "--blocks",
        metavar="PATH",
        help="The list of blocks, for a model where it is not found: 'encoder.layers'.",
    )
    @click.option(
        "--layers",
        type=NumberList(),
        metavar="0,6,8:12|all",
        help="Layers kept, 0 for the embedding output, and blocks by the layers they give; 8:12 is"
        " 8 to 11. Others may follow later, alone.  [default: all]",
    )
    @click.option(
        "--tokens",
        type=click.Choice(["all", "last", "first", "mean"]),
        default="all",
        show_default=True,
        help="Rows kept of a sequence: every token's, its last or first one (CLS), or their mean.",
    )
    @click.option(
        "--tokens-per-sequence",
        type=click.IntRange(min=1),
        metavar="N",
        help="Keep only N tokens of each sequence, drawn with the corpus's seed; not special ones.",
    )
    @click.option(
        "--device",
        default="auto",
        show_default=True,
        help="auto, cpu, cuda, cuda:1 …; split for a model that fits no single GPU (accelerate).",
    )
    @click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        help="What the model computes in.  [default: as its weights are stored]",
    )
    @click.option(
        "--batch-tokens",
        type=click.IntRange(min=1),
        help="Tokens of a batch.  [default: by the device]",
    )
    @click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default=FULL_PRECISION,
        show_default=True,
        help="Round values to the nearest of a narrower dtype; the bytes stored go to a third.",
    )
    @click.option(
        "--codec",
        type=click.Choice(CODECS),
        default=DEFAULT_CODEC,
        show_default=True,
        help="What new arrays are compressed with; lz4 is for readers that lack zstd.",
    )
    @click.option(
        "--allow-nonfinite", is_flag=True, help="Store NaN and infinity, counted, not refused."
    )
    @click.option(
        "--supersede",
        is_flag=True,
        help="Replace a step stored from other weights; history keeps it.",
    )
    @click.option(
        "--no-truncate", is_flag=True, help="Refuse sequences longer than the model takes."
    )
    @functools.wraps(command)
    def with_options(
        *,
        sites: tuple[str, ...] | None,
        blocks: str | None,
        layers: tuple[int, ...] | None,
        tokens: str,
        tokens_per_sequence: int | None,
        device: str,
        dtype: Dtype | None,
        batch_tokens: int | None,
        precision: Precision,
        codec: Codec,
        allow_nonfinite: bool,
        supersede: bool,
        no_truncate: bool,
        **others: object,
    ) -> object:
        from flows.capture.chosen import ALL, row_choice
        from flows.job import CaptureOptions

        if tokens_per_sequence is not None and tokens != ALL:
            raise click.UsageError("Give either --tokens or --tokens-per-sequence.")
        options = CaptureOptions(
            sites=sites,
            blocks=blocks,
            layers=layers,
            rows=row_choice(tokens, tokens_per_sequence),
            device=device,
            dtype=dtype,
            batch_tokens=batch_tokens,
            precision=precision,
            codec=codec,
            allow_nonfinite=allow_nonfinite,
            supersede=supersede,
            truncate=not no_truncate,
        )
        return command(options=options, **others)

    return with_options
