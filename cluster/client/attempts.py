"""Changes that a controller decides, and that are asked for again while nobody knows whether they were made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from .cluster_client import ClusterClient

_RETRY_PAUSE_S = 0.1


class Attempts:
    """The attempts of one change.

    A broker that dies may have forwarded the request to the controller, so an attempt may have made the change although
    its answer was lost. The next one is then refused: the topic exists already.
    """

    def __init__(self) -> None:
        self._may_have_succeeded = False

    def error_of(self, code: int, done_code: int) -> int:
        """The error code of the change, after an attempt that was answered with `code`.

        There is none where `done_code`, such as that of a topic that exists, tells of what a former attempt has done.
        """
        if code == done_code and self._may_have_succeeded:
            return ErrorCode.NONE
        self._may_have_succeeded = self._may_have_succeeded or code == ErrorCode.NONE
        return code

    async def final_row(
        self, client: ClusterClient, api: ApiKey, version: int, fields: Mapping[str, Any], rows: str
    ) -> Struct:
        """Ask for the change of one thing; returns the row of the answer about it, which is among its `rows`.

        It is asked for again, within the client's time-out, while the answer says that it may be otherwise soon.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + client.timeout_s
        while True:
            row: Struct = getattr(await client.request(api, version, fields, self._on_no_answer), rows)[0]
            if row.error_code == ErrorCode.REQUEST_TIMED_OUT:
                self._may_have_succeeded = True
            elif row.error_code != ErrorCode.NOT_CONTROLLER:
                return row
            if loop.time() > deadline:
                return row
            await asyncio.sleep(_RETRY_PAUSE_S)

    def _on_no_answer(self) -> None:
        self._may_have_succeeded = True
