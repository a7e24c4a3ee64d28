"""What can go wrong with a study, told so that something can be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from store.errors import suggest


class StudyError(Exception):
    """A study cannot be carried out as asked."""


class StudyChoiceError(StudyError):
    """What is asked of a study does not go together, or does not say which corpus is meant."""


class UnknownStudyError(StudyError):
    """There is no study of this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no study {name!r}{suggest(name, known)}")


class MissingInStoreError(StudyError):
    """The store lacks what a study needs, and nothing may be run."""

    def __init__(self, store: str, corpus: str, missing: Sequence[str]) -> None:
        super().__init__(
            f"{store} lacks over the corpus {corpus}: {'; '.join(missing)}. Leave out --from-store"
            " to run what is missing, or name with --models what `actlas ls` lists"
        )
