"""A client with almost no cost of its own: one socket, one request at a time, records neither parsed nor checked."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator

from ...wire.api_keys import ApiKey
from ...wire.codec import decode_response, encode_request
from ...wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response, encode_fetch_request
from ...wire.frames import RequestHeader, parse_response_header
from ...wire.frames import encode_request as encode_frame
from ...wire.records import encode_batch, read_header

_FETCH_VERSION, _PRODUCE_VERSION = 12, 9
_AHEAD = 32
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)
"""A whole request, with its size: ApiVersions of version 0, from a client without a name."""
_RESPONSE_BYTES_MAX = 80 * 1024 * 1024


class RawClient:
    """A connection to one broker. Methods raise `OSError`, or `RuntimeError` for an answer with an error code."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)
        self._correlation = 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def call(self, api_key: ApiKey, version: int, body: bytes) -> memoryview:
        """Send a request; the body of its answer, valid until the next call."""
        self.send(api_key, version, body)
        return self.receive(api_key, version)

    def send(self, api_key: ApiKey, version: int, body: bytes) -> None:
        """Send a request; `receive` returns its answer."""
        self._correlation += 1
        header = RequestHeader(int(api_key), version, self._correlation, "bench")
        self._socket.sendall(b"".join(encode_frame(header, body)))

    def receive(self, api_key: ApiKey, version: int) -> memoryview:
        """The body of the next answer, valid until the next call."""
        (size,) = struct.unpack(">i", self._receive(4))
        frame = self._receive(size)
        _, at = parse_response_header(int(api_key), version, frame)
        return frame[at:]

    def _receive(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(min(size, _RESPONSE_BYTES_MAX))
        view = memoryview(self._buffer)[:size]
        have = 0
        while have < size:
            got = self._socket.recv_into(view[have:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            have += got
        return view

    def produce(self, topic: str, partition: int, batches: Iterable[bytes], acks: int = 1) -> None:
        """Send every batch in a request of its own, several of them before the first answer."""
        waiting = 0
        for batch in batches:
            rows = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
            fields = {"acks": acks, "timeout": 30_000, "topic_data": rows}
            self.send(ApiKey.PRODUCE, _PRODUCE_VERSION, encode_request(ApiKey.PRODUCE, _PRODUCE_VERSION, fields))
            waiting += 1
            if waiting == _AHEAD:
                self._produced()
                waiting -= 1
        for _ in range(waiting):
            self._produced()

    def wait_until_leader(self, topic: str, partition: int, timeout_s: float = 30.0) -> None:
        """Wait until this broker answers for the partition; metadata may name it before."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.fetch(topic, partition, 0, 1)
                return
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _produced(self) -> None:
        answer = decode_response(ApiKey.PRODUCE, _PRODUCE_VERSION, self.receive(ApiKey.PRODUCE, _PRODUCE_VERSION))
        code = answer.responses[0].partition_responses[0].error_code
        if code:
            raise RuntimeError(f"produce failed with error {code}")

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> tuple[int, int]:
        """The bytes of records from `offset` on, and the next offset."""
        wanted = FetchTopic(topic, None, [FetchPartition(partition, fetch_offset=offset, max_bytes=max_bytes)])
        body = encode_fetch_request(_FETCH_VERSION, FetchRequest(max_wait_ms=100, topics=[wanted]))
        answer = decode_fetch_response(_FETCH_VERSION, self.call(ApiKey.FETCH, _FETCH_VERSION, body))
        row = answer.topics[0].partitions[0]
        if answer.error_code or row.error_code:
            raise RuntimeError(f"fetch failed with error {answer.error_code or row.error_code}")
        records = memoryview(row.records_in_memory())
        position = 0
        while position < len(records):
            header = read_header(records, position)
            position += header.size_bytes
            offset = header.next_offset
        return position, offset


def batches(total_bytes: int, batch_bytes: int) -> Iterator[bytes]:
    """The same random batch of records of 1 KB again and again, about `total_bytes` in all."""
    count = max(1, batch_bytes // 1024)
    now_ms = int(time.time() * 1000)  # an old one would be let go by retention
    batch = bytes(encode_batch([(None, os.urandom(1000), [], now_ms)] * count))
    for _ in range(max(1, total_bytes // len(batch))):
        yield batch
