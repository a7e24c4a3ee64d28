"""The Icechunk configuration persisted with a store."""

from __future__ import annotations

from typing import Final

import icechunk

from .schema import MODULE_PREFIX, SITES, STEP

BRANCH: Final = "main"
"""The one branch of a store."""

STEPS_PER_MANIFEST: Final = 2
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


def local_reading() -> icechunk.RepositoryConfig:
    """Return how a store on a disk is opened, on top of what is persisted with it.

    Icechunk fetches a chunk as five ranges side by side and then joins them, which takes a disk no
    less time than two, and threads are woken for each. One alone it takes 8 KiB at a time.
    """
    concurrency = icechunk.StorageConcurrencySettings(max_concurrent_requests_for_object=2)
    return icechunk.RepositoryConfig(storage=icechunk.StorageSettings(concurrency=concurrency))
