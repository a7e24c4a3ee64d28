"""What is to be exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import xarray as xr

from store.errors import UnknownNameError
from store.listing import GroupNode
from store.models import chosen_models
from store.open_model import OpenModel, open_models
from store.pinned import site_slots
from store.read import CHUNKS, model_dataset
from store.repository import Repository
from store.schema import BLOCK, LAYER, SITES, STEP, is_site, sites_among
from store.slab import Slab, slabs

from .copied import Copied, Tell


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
            UnknownNameError: If no model holds a site asked for, or one has no step or layer asked
                for, or a step asked for lacks a site asked for.
        """
        uri = self.repository.uri
        for site in self.sites or ():
            if not is_site(site):
                raise UnknownNameError("site", site, SITES, "actlas")
        found = chosen_models(uri, self.snapshot, self.corpus, self.models, self._holds)
        known: set[str] = set()
        nothing = True
        for model in open_models(uri, self.snapshot, list(found.values())):
            path = model.node.path
            held = _steps_by_site(model)
            known |= {site for site, steps in held.items() if steps}
            chosen = self._steps(held, path)
            if chosen == []:
                continue
            nothing = False
            dataset = _narrowed(model_dataset(model, CHUNKS), STEP, chosen, path)
            dataset = dataset[self._sites(held, chosen)]
            for depth in (LAYER, BLOCK):
                dataset = _narrowed(dataset, depth, self._depths(dataset, depth), path)
            yield path, dataset
        if nothing and self.sites:
            where = f"any complete step of {self.corpus}"
            raise UnknownNameError("site", ", ".join(self.sites), sites_among(known), where)

    def _sites(self, held: Mapping[str, set[int]], steps: Sequence[int] | None) -> list[str]:
        """Return the sites asked for, by default those that some of the steps hold."""
        if self.sites is not None:
            return [site for site in held if site in self.sites]
        return [site for site in held if steps is None or held[site] & set(steps)]

    def _steps(self, held: Mapping[str, set[int]], path: str) -> Sequence[int] | None:
        """Return the steps asked for, by default all, or those that hold a site asked for."""
        if self.sites is None:
            return self.steps
        wanted = {site: steps for site, steps in held.items() if site in self.sites}
        for site, steps in wanted.items():
            for step in self.steps or ():
                if step not in steps:
                    where = f"{path} with the site {site!r}"
                    raise UnknownNameError("step", step, sorted(steps), where)
        return sorted(set().union(*wanted.values())) if self.steps is None else self.steps

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

    def counted_slabs(self, tell: Tell) -> tuple[Copied, list[tuple[str, list[Slab]]]]:
        """Return the slabs of each model, and the count of what is copied of all of them."""
        chosen = list(self.slabs())
        return Copied.of_slabs((slab for _, found in chosen for slab in found), tell), chosen


def _steps_by_site(model: OpenModel) -> dict[str, set[int]]:
    """Return which complete steps hold each site that a model has an array for."""
    origin, slots = model.origin, model.slots
    held = {}
    for site in sites_among(model.node.arrays):
        holds = site_slots(origin.uri, origin.snapshot, origin.path, site)
        held[site] = set(slots.steps[holds[slots.slots]].tolist())
    return held


def _narrowed(dataset: xr.Dataset, dim: str, labels: Sequence[int] | None, path: str) -> xr.Dataset:
    if labels is None or dim not in dataset.dims:
        return dataset
    known = dataset[dim].values.tolist()
    for label in labels:
        if label not in known:
            raise UnknownNameError(dim, label, known, path)
    return dataset.sel({dim: list(labels)})
