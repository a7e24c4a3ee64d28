"""The limit on BLAS threads, entered by several threads at once."""

from __future__ import annotations

import threading

from threadpoolctl import ThreadpoolController, threadpool_info

from analysis.blas import one_blas_thread


def blas_threads() -> set[int]:
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def set_blas_threads(count: int) -> None:
    """Set the number for good, from a thread that ends and so leaves it to others to change."""
    thread = threading.Thread(
        target=lambda: ThreadpoolController().limit(limits=count, user_api="blas")
    )
    thread.start()
    thread.join()


def test_the_last_to_leave_restores_what_the_first_found() -> None:
    inside, release = threading.Event(), threading.Event()

    def stay() -> None:
        with one_blas_thread():
            inside.set()
            release.wait(10)

    (before,) = blas_threads()
    set_blas_threads(2)
    try:
        thread = threading.Thread(target=stay)
        with one_blas_thread():
            thread.start()
            assert inside.wait(10)
        assert blas_threads() == {1}
        release.set()
        thread.join()
        assert blas_threads() == {2}
    finally:
        set_blas_threads(before)


def test_the_limit_is_restored_after_an_error() -> None:
    before = blas_threads()
    try:
        with one_blas_thread():
            raise KeyError
    except KeyError:
        pass
    assert blas_threads() == before
