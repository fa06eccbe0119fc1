"""S3 and what speaks its protocol, with patience: a storage that throttles or is away for a while is asked again.

Every request of a client passes the one handler here, whatever it is part of: reads, listings, create-only writes, parts
of large uploads. It is repeated after faults of the server (5xx), throttling and lost connections, for up to three minutes,
with growing pauses. A server that has answered neither this process nor the driver before is given ten seconds, so that a
mistyped endpoint is known at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from botocore.exceptions import ConnectionError as NoConnection
from botocore.exceptions import HTTPClientError, IncompleteReadError
from botocore.parsers import ResponseParserError
from s3fs import S3FileSystem

from raystitch.access import is_expected

PATIENCE_SECONDS = 180.0
"""How long a server that is known to be there is waited for."""
FIRST_CONTACT_SECONDS = 10.0
"""How long any other is."""
LONGEST_PAUSE = 5.0

_THROTTLED = {408, 425, 429}
_CODES = {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "RequestTimeout", "RequestLimitExceeded"}
_NOT_IMPLEMENTED = 501
_FAULTS = (HTTPClientError, NoConnection, IncompleteReadError, ResponseParserError, ConnectionError, TimeoutError)
_READ_TRIES = 8
_SINCE = "raystitch_first_fault"
_T = TypeVar("_T")

_answered: set[str] = set()


class PatientS3FileSystem(S3FileSystem):  # type: ignore[misc]
    """s3fs whose requests and reads are repeated while the server has faults; listings are never cached."""

    async def set_session(self, refresh: bool = False, kwargs: dict[str, Any] | None = None) -> Any:
        """The client, with this module's handler in the place of botocore's own, which gives up after seconds."""
        client = await super().set_session(refresh, kwargs or {})
        events = client.meta.events
        events.unregister("needs-retry.s3", unique_id="retry-config-s3")
        events.register("needs-retry.s3", _pause, unique_id="raystitch-patience")
        return client

    async def _lsdir(self, *args: Any, **kwargs: Any) -> Any:
        parent = super()._lsdir
        return await _read_again(lambda: parent(*args, **kwargs))

    async def _cat_file_concurrent(self, *args: Any, **kwargs: Any) -> Any:
        parent = super()._cat_file_concurrent
        return await _read_again(lambda: parent(*args, **kwargs))


async def _read_again(read: Callable[[], Awaitable[_T]]) -> _T:
    """Repeat a read whose connection was lost after the answer had begun, which no handler of requests sees."""
    for attempt in range(1, _READ_TRIES):
        try:
            return await read()
        except _FAULTS:
            if not (_answered or is_expected()):  # nobody is there: the handler has asked often enough
                raise
            await asyncio.sleep(_growing(attempt))
    return await read()


def _pause(
    attempts: int, response: Any, caught_exception: Exception | None, request_dict: dict[str, Any], **_: Any
) -> float | None:
    """Seconds until the same request is sent again; ``None`` lets its outcome stand. The signature is botocore's."""
    server = urlsplit(request_dict["url"]).netloc
    if not _is_passing(response, caught_exception):
        if response is not None:
            _answered.add(server)
        return None
    since = request_dict["context"].setdefault(_SINCE, time.monotonic())
    patience = PATIENCE_SECONDS if server in _answered or is_expected() else FIRST_CONTACT_SECONDS
    return None if time.monotonic() - since > patience else _growing(attempts)


def _growing(attempt: int) -> float:
    """A pause of 0.1 s, 0.2 s, … at most 5 s, each shortened by chance so that workers do not come all at once."""
    return min(LONGEST_PAUSE, 0.1 * 2.0 ** min(attempt - 1, 10)) * random.uniform(0.5, 1)


def _is_passing(response: Any, error: Exception | None) -> bool:
    """Whether a fault is one that goes away by itself."""
    if error is not None:
        return isinstance(error, _FAULTS)
    http, parsed = response
    status, code = http.status_code, parsed.get("Error", {}).get("Code")
    return (status >= 500 and status != _NOT_IMPLEMENTED) or status in _THROTTLED or code in _CODES
