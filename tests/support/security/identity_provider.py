"""An identity provider on this machine: a token endpoint and the keys that verify its tokens, over HTTP or HTTPS."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

AUDIENCE, ISSUER = "kafka", "https://issuer.example"


def new_key(algorithm: str, key_id: str) -> Key:
    """A new key for signatures by this algorithm."""
    parameters: Any = {"kid": key_id, "use": "sig"}
    if algorithm == "EdDSA":
        return OKPKey.generate_key("Ed25519", parameters)
    if algorithm.startswith("ES"):
        curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm]
        return ECKey.generate_key(curve, parameters)
    return RSAKey.generate_key(2048, parameters)


class IdentityProvider:
    """Issues tokens for clients whose secret is `secret-of-<id>`, signed by `keys[-1]`."""

    def __init__(self, lifetime_s: int = 3600) -> None:
        self.lifetime_s = lifetime_s
        self.keys = [new_key("RS256", "first")]
        self.issued: list[str] = []
        self.reads = 0
        """How often the keys were read."""
        self.url = ""

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        return f"{self.url}/keys"

    def rotate(self, key_id: str) -> None:
        """Sign by another key from now on."""
        self.keys = [new_key("RS256", key_id)]

    def key_set(self) -> bytes:
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()

    def token(self, subject: str, **claims: Any) -> str:
        """A token; claims that are None are left out."""
        now = int(time.time())
        values = {"sub": subject, "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + self.lifetime_s} | claims
        key = self.keys[-1]
        header = {"alg": "RS256", "kid": key.kid}
        return jwt.encode(header, {name: value for name, value in values.items() if value is not None}, key)

    @contextmanager
    def serving(self, certificate: Path | None = None) -> Iterator[IdentityProvider]:
        """Serve by HTTP, or by HTTPS with a file that has a key and its certificate."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.url = f"{'http' if certificate is None else 'https'}://localhost:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(provider: IdentityProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            provider.reads += 1
            self._answer(200, provider.key_set())

        def do_POST(self) -> None:
            fields = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            login = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            client, _, secret = login.partition(":")
            if secret != f"secret-of-{client}" or fields["grant_type"] != ["client_credentials"]:
                self._answer(401, b'{"error": "invalid_client", "error_description": "wrong secret"}')
                return
            token = provider.token(client)
            provider.issued.append(client)
            answer = {"access_token": token, "token_type": "Bearer", "expires_in": provider.lifetime_s}
            self._answer(200, json.dumps(answer).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
