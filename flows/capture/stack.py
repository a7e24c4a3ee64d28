"""One stack of blocks of a model: the noun that everything after the search works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn
from transformers import PreTrainedModel

from flows.capture.attention import Attention
from flows.capture.extent import Extent
from flows.capture.modules import ModuleSite
from flows.capture.probe import Probe
from flows.capture.running import decoder_inputs
from flows.capture.sublayers import Sublayers


@dataclass(frozen=True)
class Stack:
    """The parts of one stack of blocks.

    Attributes:
        name: ``encoder`` or ``decoder`` for the two stacks of a model that has both, else None.
        path: Dotted name of the list of blocks within what is run.
        blocks: The distinct modules that are called as blocks.
        n_blocks: How many times one is called in a forward pass.
        final_norm: The norm applied to the output of the last block, None if there is none.
        width: Size of the hidden states.
        causal: Whether a position sees only itself and earlier ones.
        root: The model that is run, or the part of it that is enough.
        decoder_start: Id that a decoder starts with before the text; None unless it reads what
            an encoder reads.
        predicts: Tokens that its logits are about: ``NEXT`` of each position, those ``MASKED``, or
            None where there are no logits of it.
        sublayers: For each distinct block, what gives what it adds to the residual stream; None
            where that is not the sum of two sublayers.
        attention: What its attention is like; None where it has none that can be watched.
        rate: Tokens that one row spans.
        probe: Shows it a few short sequences, or images or sounds.
        shown_rows: Rows of each image or sound that the probe shows; None where it shows text.
        modules: Modules found so far that a site names.
        entry: Gives layer 0; None where that is what the first block is given.
        depth_start: Number of blocks of the model before layer 0, for a stage.
        depth_blocks: Number of blocks of all stages; that of its own where there is one stack.
        extent: How its rows lie in an image, None unless it is shown images.
        prompt: Ids that a decoder is shown beside each image or sound; None for any other stack.
    """

    name: str | None
    path: str
    blocks: tuple[nn.Module, ...]
    n_blocks: int
    final_norm: nn.Module | None
    width: int
    causal: bool
    root: PreTrainedModel
    decoder_start: int | None
    predicts: str | None
    sublayers: tuple[Sublayers, ...] | None
    attention: Attention | None
    rate: int = 1
    probe: Probe | None = None
    shown_rows: int | None = None
    modules: dict[str, ModuleSite] = field(default_factory=dict, compare=False)
    entry: nn.Module | None = None
    depth_start: int = 0
    depth_blocks: int | None = None
    extent: Extent | None = None
    prompt: tuple[int, ...] | None = None

    def arguments(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what is run for a batch: the inputs, and what a decoder is shown beside them."""
        if self.decoder_start is None:
            return inputs
        return decoder_inputs(inputs["input_ids"], inputs["attention_mask"], self.decoder_start)
