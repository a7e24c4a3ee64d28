"""What is to be exported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xarray as xr

from store.errors import UnknownNameError
from store.listing import GroupNode
from store.models import chosen_models
from store.open_model import open_models
from store.read import CHUNKS, model_dataset
from store.repository import Repository
from store.schema import BLOCK, LAYER, SITES, STEP, is_site, sites_among
from store.slab import Slab, slabs


@dataclass(frozen=True)
class Selection:
    """Activations of models over one corpus, as of one snapshot.

    Attributes:
        repository: The store.
        snapshot: Id of the snapshot.
        corpus: Name of the corpus.
        models: Ids of models, None for all.
        sites: Names of sites, None for all.
        steps: Labels of steps, None for all complete ones.
        layers: Labels of layers and blocks, None for all.
    """

    repository: Repository
    snapshot: str
    corpus: str
    models: Sequence[str] | None = None
    sites: Sequence[str] | None = None
    steps: Sequence[int] | None = None
    layers: Sequence[int] | None = None

    def datasets(self) -> Iterator[tuple[str, xr.Dataset]]:
        """Yield the path of each model and its dataset, narrowed to the selection, lazy.

        Raises:
            UnknownNameError: If a model asked for holds no site asked for, or no step or layer
                asked for.
        """
        uri = self.repository.uri
        for site in self.sites or ():
            if not is_site(site):
                raise UnknownNameError("site", site, SITES, "actlas")
        found = chosen_models(uri, self.snapshot, self.corpus, self.models, self._holds)
        for model in open_models(uri, self.snapshot, list(found.values())):
            path = model.node.path
            dataset = model_dataset(model, CHUNKS)
            sites = [name for name in dataset.data_vars if self.sites is None or name in self.sites]
            dataset = _narrowed(dataset[sites], STEP, self.steps, path)
            for depth in (LAYER, BLOCK):
                dataset = _narrowed(dataset, depth, self._depths(dataset, depth), path)
            yield path, dataset

    def _holds(self, node: GroupNode) -> bool:
        return any(site in node.arrays for site in self.sites or sites_among(node.arrays))

    def _depths(self, dataset: xr.Dataset, depth: str) -> list[int] | None:
        """Return the labels asked for; blocks start at 1, so layer 0 has none."""
        if self.layers is None or depth not in dataset.dims:
            return None
        return [label for label in self.layers if not (depth == BLOCK and label == 0)]

    def slabs(self) -> Iterator[tuple[str, list[Slab]]]:
        """Yield the path of each model and its selected slabs, by step, then by site and layer."""
        for path, dataset in self.datasets():
            found: list[Slab] = []
            for site in map(str, dataset.data_vars):
                depth = next((name for name in (LAYER, BLOCK) if name in dataset[site].dims), None)
                layers = None if depth is None else dataset[depth].values.tolist()
                found += slabs(
                    self.repository, path, site=site, layers=layers, snapshot=self.snapshot
                )
            steps = set(dataset[STEP].values.tolist())
            chosen = [slab for slab in found if slab.step in steps]
            yield path, sorted(chosen, key=lambda slab: slab.step)


def _narrowed(dataset: xr.Dataset, dim: str, labels: Sequence[int] | None, path: str) -> xr.Dataset:
    if labels is None or dim not in dataset.dims:
        return dataset
    known = dataset[dim].values.tolist()
    for label in labels:
        if label not in known:
            raise UnknownNameError(dim, label, known, path)
    return dataset.sel({dim: list(labels)})
