"""What the operating system says of a failure, in words for people, without its error number."""

from __future__ import annotations

import os
import re


def os_reason(error: OSError) -> str:
    """The reason, after the file if there is one: `/data/1: no space left on device`."""
    words = os_words(error)
    return words if error.filename is None else f"{os.fsdecode(error.filename)}: {words}"


def os_words(error: OSError) -> str:
    """The reason without the file, for sentences that name it themselves."""
    words = error.strerror
    # asyncio puts the address in the place of the reason, and joins the reasons of several addresses in one text.
    number = error.errno if isinstance(error, ConnectionError) else None
    if error.errno is None:
        found = re.search(r"\[Errno (\d+)\]", str(error))
        number = None if found is None else int(found[1])
    if number is not None:
        words = os.strerror(number)
    if not words:
        return str(error) or type(error).__name__
    words = words.partition(" (while attempting to bind")[0]  # asyncio adds the address to the reason
    return words[0].lower() + words[1:]
