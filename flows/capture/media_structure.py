"""Where the parts of a model of images or sounds are, found by watching one small forward pass.

Blocks are the members of one list that is called as often as the config says, or, in a model
whose config tells the ``depths`` of several stages, of one list in each stage. Stages differ in
width and in the number of their rows; each becomes a stack. No family is named here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from flows.capture.attention import find_attention
from flows.capture.called_lists import SHOWN, CalledList, watch_lists
from flows.capture.errors import StructureError
from flows.capture.extent import Extent, find_extent
from flows.capture.media_decoder import find_decoder
from flows.capture.probe import Probe
from flows.capture.running import run
from flows.capture.stack import Stack
from flows.capture.structure import of_stack
from flows.capture.sublayers import find_sublayers

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each argument of a model, without the axis of sequences."""

_WITHIN_STAGE: Final = re.compile(r"(?P<stages>.+)\.(?P<stage>\d+)\.(?P<blocks>\w+)")


def find_media_stacks(
    model: PreTrainedModel, shapes: Shapes, blocks: str | None = None
) -> tuple[Stack, ...]:
    """Find the stacks of a model of images or sounds: one, one a stage, or encoder and decoder.

    Args:
        model: The model; of one with two towers only the part that sees images is looked at.
        shapes: What one image or sound looks like to it.
        blocks: Dotted name of the list of blocks, for a model where it cannot be found; those of
            the stages, or of encoder and decoder, with commas between.

    Raises:
        StructureError: If no list of blocks, or more than one, fits; it says what was found.
    """
    name, root = _seeing_part(model, shapes)
    noise = _noise(root, shapes)
    probe = _probe(root, noise)
    seen, norms = watch_lists(root, probe)
    paths = [] if blocks is None else [path.strip() for path in blocks.split(",")]
    hears = name == "encoder"
    own_paths = [path.removeprefix("encoder.") for path in of_stack(paths, "encoder")]
    found = _chosen(root, seen, own_paths if hears else paths)
    staged = len(found) > 1
    size = shapes["pixel_values"][-2:] if "pixel_values" in shapes else None
    stacks = []
    passed = 0
    for number, entry in enumerate(found, 1):
        own = f"stage{number}" if staged else name
        total = sum(len(each.outputs) for each in found)
        stacks.append(_stack(root, probe, entry, own, norms, size, (passed, total)))
        passed += len(entry.outputs)
    if hears:
        stacks.append(find_decoder(model, noise, of_stack(paths, "decoder")))
    return tuple(stacks)


def _seeing_part(model: PreTrainedModel, shapes: Shapes) -> tuple[str | None, PreTrainedModel]:
    tower = getattr(model, "vision_model", None)
    if "pixel_values" in shapes and isinstance(tower, PreTrainedModel):
        return "vision", tower
    if model.config.is_encoder_decoder:
        return "encoder", model.get_encoder()
    return None, model


def _noise(root: PreTrainedModel, shapes: Shapes) -> dict[str, Tensor]:
    """Return what images or sounds of noise look like, always the same."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(SHOWN, *shape, generator=generator).to(root.device, root.dtype)
        for name, shape in shapes.items()
    }


def _probe(root: PreTrainedModel, noise: Mapping[str, Tensor]) -> Probe:
    """Return a probe that always shows the same, whatever sequences it is asked for."""
    return lambda _sequences: run(root, noise)


def _chosen(
    root: PreTrainedModel, seen: Sequence[CalledList], paths: Sequence[str]
) -> list[CalledList]:
    depths = getattr(root.config, "depths", None)
    if not paths:
        return _one_list(root, seen) if depths is None else _stages(root, seen, depths)
    found = [one for path in paths for one in seen if one.path == path and one.is_stack]
    if len(found) != len(paths):
        raise _not_found(root, ", ".join(paths), len(found), seen)
    return found


def _one_list(root: PreTrainedModel, seen: Sequence[CalledList]) -> list[CalledList]:
    """Return the outermost list that is called as often as the config says."""
    expected = getattr(root.config, "num_hidden_layers", None)
    fitting = [one for one in seen if one.is_stack and expected in (None, len(one.outputs))]
    outermost = [
        one for one in fitting if not any(one.path.startswith(f"{o.path}.") for o in fitting)
    ]
    if len(outermost) == 1:
        return outermost
    wanted = f"one list of blocks called num_hidden_layers = {expected} times"
    raise _not_found(root, wanted, len(outermost), seen)


def _stages(
    root: PreTrainedModel, seen: Sequence[CalledList], depths: Sequence[int]
) -> list[CalledList]:
    """Return the list of blocks of each stage."""
    found: dict[tuple[str, str], dict[int, CalledList]] = {}
    for one in seen:
        match = _WITHIN_STAGE.fullmatch(one.path)
        if match and one.is_stack:
            found.setdefault((match["stages"], match["blocks"]), {})[int(match["stage"])] = one
    fitting = [
        [stages[i] for i in range(len(depths))]
        for stages in found.values()
        if [len(stages[i].outputs) if i in stages else 0 for i in range(len(depths))]
        == list(depths)
    ]
    if len(fitting) == 1:
        return fitting[0]
    wanted = f"stages with lists of {', '.join(map(str, depths))} blocks"
    raise _not_found(root, wanted, len(fitting), seen)


def _not_found(
    root: PreTrainedModel, wanted: str, fitting: int, seen: Sequence[CalledList]
) -> StructureError:
    listed = "; ".join(one.describe() for one in seen) or "no list of modules at all"
    return StructureError(
        f"{type(root).__name__}: expected {wanted}, {fitting} fit; it has {listed}. Name the list"
        " of blocks with --blocks, those of stages with commas between"
    )


def _stack(
    root: PreTrainedModel,
    probe: Probe,
    found: CalledList,
    name: str | None,
    norms: Sequence[tuple[nn.Module, Tensor]],
    size: tuple[int, ...] | None,
    depth: tuple[int, int],
) -> Stack:
    shape = found.outputs[0]
    # Where the first block changes the shape, layer 0 is what it gives, not what it is given.
    first = 0 if found.given == shape else 1
    blocks = found.modules[first:]
    assert found.last is not None
    n_blocks = len(found.outputs) - first
    is_map = found.last.dim() == 4
    rows = (SHOWN, shape[1])
    return Stack(
        name=name,
        path=found.path,
        blocks=blocks,
        n_blocks=n_blocks,
        # Where maps are normed, it is on their way into the next stage.
        final_norm=None if is_map else next((n for n, given in norms if given is found.last), None),
        width=shape[2],
        causal=False,
        root=root,
        decoder_start=None,
        predicts=None,
        sublayers=find_sublayers(root, probe, blocks, rows) if not is_map else None,
        attention=find_attention(root, probe, blocks, n_blocks, rows) if not is_map else None,
        probe=probe,
        shown_rows=shape[1],
        entry=found.modules[0] if first else None,
        depth_start=depth[0] + first,
        depth_blocks=depth[1],
        extent=None if size is None else _extent(root, found.last, shape[1], size),
    )


def _extent(root: PreTrainedModel, hidden: Tensor, rows: int, size: tuple[int, ...]) -> Extent:
    height, width = size
    if hidden.dim() == 4:
        return Extent(0, hidden.shape[2], hidden.shape[3])
    patch = getattr(root.config, "patch_size", None)
    if patch is None or hasattr(root.config, "depths"):
        return find_extent(rows, (height, width), None)
    own = (patch, patch) if isinstance(patch, int) else (int(patch[0]), int(patch[1]))
    return find_extent(rows, (height, width), own)
