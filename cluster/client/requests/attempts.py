"""Changes that a controller decides, and that are asked for again while nobody knows whether they were made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ..cluster_client import ClusterClient

_RETRY_PAUSE_S = 0.1


class Attempts:
    """The attempts of one change.

    A broker that dies may have forwarded the request to the controller, so an attempt may have made the change although
    its answer was lost. The next one is then refused: the topic exists already.
    """

    def __init__(self) -> None:
        self.may_have_succeeded = False

    def error_of(self, code: int, done_code: int) -> int:
        """The error code of the change, after an attempt that was answered with `code`.

        There is none where `done_code`, such as that of a topic that exists, tells of what a former attempt has done.
        """
        return ErrorCode.NONE if code == done_code and self.may_have_succeeded else code

    async def request(self, client: ClusterClient, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        """Ask for the change; the next broker is asked after one that gave no answer."""
        return await client.request(api, version, fields, self.on_no_answer)

    async def final_row(
        self, client: ClusterClient, api: ApiKey, version: int, fields: Mapping[str, Any], rows: str
    ) -> Struct:
        """Ask for the change of one thing; returns the row of the answer about it, which is among its `rows`.

        It is asked for again, within the client's time-out, while the answer says that it may be otherwise soon. Where
        a quota is used up it is asked for again after the throttle time (KIP-599), but not by a silent client, since
        that would not say what it waits for.
        """
        deadline = client.throttling.unthrottled_time() + client.timeout_s
        while True:
            row: Struct = getattr(await self.request(client, api, version, fields), rows)[0]
            if row.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                self.may_have_succeeded = True
            is_used_up = row.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and not client.throttling.is_silent
            if is_used_up and client.throttling.left_s:
                continue  # the request waits
            is_temporary = row.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
            may_change = is_temporary or is_used_up  # a throttle time of a millisecond may be over already
            if not may_change or client.throttling.unthrottled_time() > deadline:
                return row
            await asyncio.sleep(_RETRY_PAUSE_S)

    def on_no_answer(self) -> None:
        """A broker got the request and gave no answer."""
        self.may_have_succeeded = True
