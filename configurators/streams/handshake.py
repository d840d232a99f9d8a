"""The handshake of a stream: both ends prove that they know the same token, without sending it.

    listener                          dialler
       Challenge(nonce)        ->
                               <-     Proof(nonce, name, code)
       Welcome(name, code)     ->

Without I/O: frames in, frames out. The dialler proves itself first, so that a stranger's connection
costs the listener next to nothing. The handshake keeps strangers out. It does not protect against
attackers that can read or change packets between the machines: against them, use TLS (`tls.py`).

With TLS the codes include the listener's certificate. So a process that sits between the two with
another certificate, though one of the same CA, cannot pass the proofs on.
"""

import hmac
import secrets

import msgspec
from msgspec import Struct

from dzflow.errors import DzflowError

MAGIC = "dzflow-stream/1"
NONCE = 32
MAX_NAME = 256
MAX_FRAME = 1024  # of a handshake


class NotTrusted(DzflowError):
    """The other end does not know the token, or does not speak this protocol."""


class Challenge(Struct, frozen=True, array_like=True):
    """The first message, of the listener."""

    magic: str
    nonce: bytes


class Proof(Struct, frozen=True, array_like=True):
    """The dialler's answer to a challenge."""

    nonce: bytes
    name: str
    code: bytes


class Welcome(Struct, frozen=True, array_like=True):
    """The listener's answer to a correct proof."""

    name: str
    code: bytes


_CHALLENGE = msgspec.msgpack.Decoder(Challenge)
_PROOF = msgspec.msgpack.Decoder(Proof)
_WELCOME = msgspec.msgpack.Decoder(Welcome)


class Handshake:
    """The state of one end; `peer` is the other end's name as soon as it is trusted."""

    def __init__(self, token: bytes, name: str, listens: bool) -> None:
        if not token:
            raise NotTrusted("an empty token protects nothing; give all processes the same secret")
        self.peer: str | None = None
        self._token = token
        self._name = name[:MAX_NAME]
        self._listens = listens
        self._nonce = secrets.token_bytes(NONCE)
        self._theirs: bytes | None = None
        self._certificate = b""

    def bind(self, certificate: bytes) -> None:
        """Bind the proofs to the listener's certificate (DER); both ends must do it, or none."""
        self._certificate = certificate

    def connected(self, certificate: bytes) -> None:
        """Take note of the certificate that the other end has shown in TLS."""
        if not self._listens:
            self.bind(certificate)

    def first(self) -> bytes | None:
        """The frame to send at once, if this end begins."""
        if not self._listens:
            return None
        return msgspec.msgpack.encode(Challenge(MAGIC, self._nonce))

    def receive(self, frame: bytes | memoryview) -> bytes | None:
        """The answer to a frame, if there is one; NotTrusted if the frame is wrong."""
        try:
            if self._listens:
                return self._verify_proof(_PROOF.decode(frame))
            if self._theirs is None:
                return self._answer_challenge(_CHALLENGE.decode(frame))
            self._verify_welcome(_WELCOME.decode(frame))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise NotTrusted("the other end does not speak the protocol of dzflow") from None
        return None

    def _answer_challenge(self, challenge: Challenge) -> bytes:
        if challenge.magic != MAGIC or len(challenge.nonce) != NONCE:
            raise NotTrusted(f"the other end speaks {challenge.magic[:40]!r} instead of {MAGIC!r}")
        self._theirs = challenge.nonce
        code = self._code("dials", challenge.nonce, self._nonce, self._name)
        return msgspec.msgpack.encode(Proof(self._nonce, self._name, code))

    def _verify_proof(self, proof: Proof) -> bytes:
        if len(proof.nonce) != NONCE or len(proof.name) > MAX_NAME:
            raise NotTrusted("the other end sent a proof of the wrong size")
        code = self._code("dials", self._nonce, proof.nonce, proof.name)
        if not hmac.compare_digest(code, proof.code):
            raise NotTrusted("the other end has another token; give all processes the same one")
        self.peer = proof.name
        code = self._code("listens", self._nonce, proof.nonce, self._name)
        return msgspec.msgpack.encode(Welcome(self._name, code))

    def _verify_welcome(self, welcome: Welcome) -> None:
        assert self._theirs is not None
        code = self._code("listens", self._theirs, self._nonce, welcome.name)
        if not hmac.compare_digest(code, welcome.code):
            raise NotTrusted("the other end has another token; give all processes the same one")
        self.peer = welcome.name

    def _code(self, role: str, listener: bytes, dialler: bytes, name: str) -> bytes:
        bound = (self._certificate,) if self._certificate else ()
        said = msgspec.msgpack.encode((MAGIC, role, listener, dialler, name, *bound))
        return hmac.digest(self._token, said, "sha256")
