"""The Icechunk configuration persisted with a store."""

from __future__ import annotations

from typing import Final

import icechunk

from .schema import MODULE_PREFIX, SITES, STEP

BRANCH: Final = "main"
"""The one branch of a store."""

STEPS_PER_MANIFEST: Final = 8
"""Few are cheap to write, many are few manifests to compare with: a commit looks at all of them."""

COORDINATE_STEPS_PER_MANIFEST: Final = 64
INLINE_BYTES: Final = 2048


def icechunk_config() -> icechunk.RepositoryConfig:
    """Return the configuration persisted with a store.

    A manifest lists the chunks of an array and is rewritten whole by every commit that touches
    it; split by steps, a commit costs the same however many steps there are. Small values live in
    the manifests themselves, so that reading all steps' coordinates needs no request a step.
    """
    condition, dimension = icechunk.ManifestSplitCondition, icechunk.ManifestSplitDimCondition
    activations = condition.name_matches(f"^({'|'.join(SITES)}|{MODULE_PREFIX}.*)$")
    splitting = icechunk.ManifestSplittingConfig.from_dict(
        {
            activations: {dimension.DimensionName(STEP): STEPS_PER_MANIFEST},
            condition.AnyArray(): {dimension.DimensionName(STEP): COORDINATE_STEPS_PER_MANIFEST},
        }
    )
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = INLINE_BYTES
    # Ids of chunks are random: a higher level finds little, in a tenth of a commit's time.
    config.compression = icechunk.CompressionConfig(icechunk.CompressionAlgorithm.Zstd, 1)
    config.manifest = icechunk.ManifestConfig(splitting=splitting)
    return config


def opening_config(*, on_disk: bool) -> icechunk.RepositoryConfig:
    """Return how a store is opened, on top of what is persisted with it.

    By itself Icechunk compares the names of all arrays, at the start of every session, with those
    that times and places usually have, to load their manifests ahead: none of ours has, and it
    takes more than all else that opening does.

    From a disk it fetches a chunk as five ranges side by side and then joins them, which takes no
    less time than two, and threads are woken for each. One alone it takes 8 KiB at a time.
    """
    nothing = icechunk.ManifestPreloadConfig(
        max_total_refs=0, preload_if=icechunk.ManifestPreloadCondition.false()
    )
    config = icechunk.RepositoryConfig(manifest=icechunk.ManifestConfig(preload=nothing))
    if on_disk:
        concurrency = icechunk.StorageConcurrencySettings(max_concurrent_requests_for_object=2)
        config.storage = icechunk.StorageSettings(concurrency=concurrency)
    return config
