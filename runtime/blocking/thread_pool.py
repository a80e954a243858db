"""A pool of threads that goes on with those it has when the system can start no more (`pids.max`, `ulimit -u`)."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor


class ThreadPool(ThreadPoolExecutor):
    """`ThreadPoolExecutor` with a thread from the beginning on: what is submitted is done, once, and never refused.

    The library's own raises when a thread does not start, and leaves the work in its queue: another thread does it when
    the descriptors that it was given belong to somebody else. The constructor raises `OSError` with EAGAIN when the
    first thread does not start.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        super().__init__(threads_max, thread_name_prefix=name)
        try:
            self.submit(_do_nothing)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread can be started ({error})") from error

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


def _do_nothing() -> None:
    pass
