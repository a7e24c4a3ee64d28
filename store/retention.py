"""Giving room back: dropping activations by choice, and deleting what nothing refers to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.sync import sync

from .arrays import member, step_capacity
from .cells import read_cells, read_texts, write_cells
from .claims import claim_slot
from .columns import Column, read_columns
from .errors import UnknownNameError, UnsafeMarginError
from .history import history, tags
from .listing import list_groups
from .messages import dropped_sites
from .nonfinite import count_nonfinite
from .repository import Repository
from .schema import SITES, STEP, STEP_COORDINATES, is_site
from .site_depths import erase
from .slots import FREE, model_group
from .stoppable import stoppable
from .translation import translated

MARGIN: Final = timedelta(days=1)
"""Age below which no object is deleted: it may belong to a commit that is yet to come."""

LEAST_MARGIN: Final = timedelta(minutes=10)


@dataclass(frozen=True)
class Dropped:
    """Activations that were dropped from the present, or would be.

    Attributes:
        step: Training step.
        sites: Sites dropped.
        sites_left: Sites that stay.
        stored_bytes: Encoded bytes of what was dropped; they are freed once history lets go.
    """

    step: int
    sites: tuple[str, ...]
    sites_left: tuple[str, ...]
    stored_bytes: int


def drop_activations(
    repository: Repository,
    path: str,
    *,
    steps: Sequence[int] | None = None,
    sites: Sequence[str] | None = None,
    dry_run: bool = False,
) -> list[Dropped]:
    """Drop activations of a model in one commit; its metrics, and its history, stay.

    A step that loses its last site disappears from the catalogue and can be ingested again.

    Args:
        repository: The store.
        path: ``corpus/model`` or ``corpus/model/stack``.
        steps: Labels of complete steps, all by default.
        sites: Names of sites, all by default.
        dry_run: Whether only to say what would be dropped.

    Returns:
        What was dropped, by step in the order of the slots.

    Raises:
        UnknownNameError: If the model, a step or a site is not in the store.
    """

    def change(root: zarr.Group) -> list[Dropped]:
        group = model_group(root, path, repository.uri)
        chosen = _chosen_slots(group, path, steps)
        found = [_dropped(group, slot, step, sites) for slot, step in chosen]
        plan = [(slot, one) for (slot, _), one in zip(chosen, found, strict=True) if one.sites]
        for slot, one in plan if not dry_run else ():
            _drop(group, slot, one)
        return [one for _, one in plan]

    def told(found: list[Dropped]) -> str:
        gone = dict.fromkeys(site for one in found for site in one.sites)
        return dropped_sites(path, list(gone), sorted(one.step for one in found))

    for site in sites or ():
        if not is_site(site):
            raise UnknownNameError("site", site, SITES, path)
    return repository.update(told, change)


def _chosen_slots(
    group: zarr.Group, path: str, steps: Sequence[int] | None
) -> list[tuple[int, int]]:
    size = step_capacity(group)
    columns = [Column(group.path, STEP_COORDINATES[name], size) for name in (STEP, "complete")]
    labels, complete = read_columns(group.store, columns)
    held = {int(labels[slot]): int(slot) for slot in np.flatnonzero(complete)}
    for step in steps or ():
        if step not in held:
            raise UnknownNameError("step", step, held, path)
    return [(slot, step) for step, slot in held.items() if steps is None or step in steps]


def _dropped(group: zarr.Group, slot: int, step: int, sites: Sequence[str] | None) -> Dropped:
    (listed,) = read_texts(group, slot, "sites")
    stored = listed.split()
    gone = tuple(site for site in stored if sites is None or site in sites)
    left = tuple(site for site in stored if site not in gone)
    size = sum(_encoded_bytes(group, site, slot) for site in gone)
    return Dropped(step, gone, left, size)


def _encoded_bytes(group: zarr.Group, site: str, slot: int) -> int:
    array = member(group, site)
    index = itertools.product(*(range(count) for count in array.cdata_shape[1:]))
    return sync(
        _total_size(
            array.store, [f"{array.path}/c/{slot}/" + "/".join(map(str, at)) for at in index]
        )
    )


async def _total_size(store: Store, keys: Sequence[str]) -> int:
    """Return the size of the chunks that are there: retention also cleans up after losses."""
    sizes = await asyncio.gather(*map(store.getsize, keys), return_exceptions=True)
    return sum(size for size in sizes if isinstance(size, int))


def _drop(group: zarr.Group, slot: int, dropped: Dropped) -> None:
    (nonfinite,) = map(int, read_cells(group, slot, "nonfinite"))
    if nonfinite and dropped.sites_left:
        # Else a census would miss those that go.
        gone = sum(count_nonfinite(group, site, slot) for site in dropped.sites)
        write_cells(group, slot, {"nonfinite": nonfinite - gone})
    for site in dropped.sites:
        erase(group, site, slot)
    member(group, "sites")[slot] = np.asarray(" ".join(dropped.sites_left))
    if dropped.sites_left:
        stored = int(np.asarray(member(group, "stored_bytes")[slot]).item())
        member(group, "stored_bytes")[slot] = max(stored - dropped.stored_bytes, 0)
    else:
        member(group, "complete")[slot] = False
        member(group, STEP)[slot] = FREE


@dataclass(frozen=True)
class Garbage:
    """What garbage collection deleted, or would delete.

    Attributes:
        expired: Ids of snapshots that left the history.
        objects: Number of objects deleted.
        freed_bytes: Their size. A dry run cannot count what only the expiry would make garbage.
        kept_bytes: Encoded bytes of the chunks that the history still holds.
        kept: Snapshots that stay, in the history or by their tags.
        kept_young: Those of them that are too young to leave it.
        kept_tagged: Those that are old enough, and that tags keep.
    """

    expired: tuple[str, ...]
    objects: int
    freed_bytes: int
    kept_bytes: int
    kept: int
    kept_young: int
    kept_tagged: int


def collect_garbage(
    repository: Repository,
    *,
    keep_history: timedelta | None = None,
    margin: timedelta = MARGIN,
    dry_run: bool = False,
) -> Garbage:
    """Delete objects that no snapshot of the history refers to.

    Objects of a commit that is yet to come look like garbage too, and Icechunk would let that
    commit succeed: nothing younger than ``margin``, or than the oldest writer alive on a local
    disk, is touched. In an object store the margin must be longer than the longest write.

    Args:
        repository: The store.
        keep_history: Age from which snapshots leave the history first, except the newest one and
            tagged ones; all of them stay by default.
        margin: Age below which no object is deleted.
        dry_run: Whether only to say what would be deleted.

    Raises:
        StoreError: If the margin is below ten minutes, or the store cannot be written to.
        StoreFullError: If the disk is full.
    """
    require_margin(margin)
    cutoff = min([datetime.now(UTC) - margin, *_writers_alive(repository)])
    expired: tuple[str, ...] = ()
    oldest = min(datetime.now(UTC) - (keep_history or timedelta()), cutoff)
    if keep_history is not None:
        expired = _expire(repository, oldest, dry_run)
    # What a collection has not come to, the next one deletes.
    with translated(repository.location):
        done = stoppable(lambda: repository.icechunk.garbage_collect(cutoff, dry_run=dry_run))
    objects = (
        done.chunks_deleted
        + done.manifests_deleted
        + done.snapshots_deleted
        + done.attributes_deleted
        + done.transaction_logs_deleted
    )
    held = stoppable(repository.icechunk.chunk_storage_stats)
    kept = [one for one in history(repository) if one.id not in expired]
    young = {one.id for one in kept if one.written_at >= oldest}
    # Those that an expiry left to their tags alone are no longer in the history of the branch.
    tagged = set(tags(repository).values())
    return Garbage(
        expired=expired,
        objects=objects,
        freed_bytes=done.bytes_deleted,
        kept_bytes=held.native_bytes + held.inlined_bytes,
        kept=len({one.id for one in kept} | tagged),
        kept_young=len(young),
        kept_tagged=len(tagged - young),
    )


def require_margin(margin: timedelta) -> None:
    """Refuse a margin within which somebody may be about to commit.

    Raises:
        UnsafeMarginError: If it is below ten minutes.
    """
    if margin < LEAST_MARGIN:
        raise UnsafeMarginError(
            f"a margin of {margin} could delete what a writer is about to commit;"
            f" expected at least {LEAST_MARGIN}, and more than the longest write"
        )


def occupied_bytes(repository: Repository) -> int | None:
    """Return what a store takes on its disk, None where it is not on one."""
    directory = repository.location.directory
    if directory is None:
        return None
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _writers_alive(repository: Repository) -> list[datetime]:
    """Return when the writers at work reserved their steps; only a local disk tells who lives."""
    root = repository.read()
    found = []
    for node in list_groups(root).walk():
        if STEP not in node.arrays:
            continue
        size = node.arrays[STEP].shape[0]
        names = (STEP, "complete", "reserved_at")
        columns = [Column(node.path, STEP_COORDINATES[name], size) for name in names]
        labels, complete, reserved_at = read_columns(root.store, columns)
        for slot in np.flatnonzero((labels != FREE) & ~complete.astype(bool)):
            with translated(repository.location):
                claim = claim_slot(repository.location, node.path, int(slot))
            if claim is None:
                found.append(datetime.fromisoformat(str(reserved_at[slot])))
            else:
                claim.release()
    return found


def _expire(repository: Repository, older_than: datetime, dry_run: bool) -> tuple[str, ...]:
    """Let snapshots leave the history; the newest, the first and tagged ones stay."""
    before = history(repository)
    if dry_run:
        old = [one for one in before[1:-1] if one.written_at < older_than]
    else:
        with repository.lock(), translated(repository.location):
            repository.icechunk.expire_snapshots(older_than)
        left = {one.id for one in history(repository)}
        old = [one for one in before if one.id not in left]
    return tuple(one.id for one in old if not one.tags)
