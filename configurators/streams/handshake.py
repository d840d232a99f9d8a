"""Two ends of a stream convince each other that they know the same token; nothing of it is sent.

    listener                          dialler
       Challenge(nonce)        ->
                               <-     Proof(nonce, name, code)
       Welcome(name, code)     ->

Without I/O: frames in, frames out. The dialler proves itself first, so that whoever just connects
costs a listener next to nothing. It keeps strangers out; against somebody who can change packets
between the machines, use a network that is your own or encrypted.
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
    """The other end does not know the token, or is no stream of ours at all."""


class Challenge(Struct, frozen=True, array_like=True):
    """What a listener begins with."""

    magic: str
    nonce: bytes


class Proof(Struct, frozen=True, array_like=True):
    """A dialler's answer."""

    nonce: bytes
    name: str
    code: bytes


class Welcome(Struct, frozen=True, array_like=True):
    """A listener's answer to a proof that holds."""

    name: str
    code: bytes


_CHALLENGE = msgspec.msgpack.Decoder(Challenge)
_PROOF = msgspec.msgpack.Decoder(Proof)
_WELCOME = msgspec.msgpack.Decoder(Welcome)


class Handshake:
    """One end's view; `peer` is the other end's name as soon as it is trusted."""

    def __init__(self, token: bytes, name: str, listens: bool) -> None:
        if not token:
            raise NotTrusted("an empty token protects nothing; give all processes the same secret")
        self.peer: str | None = None
        self._token = token
        self._name = name[:MAX_NAME]
        self._listens = listens
        self._nonce = secrets.token_bytes(NONCE)
        self._theirs: bytes | None = None

    def first(self) -> bytes | None:
        """What to send at once, if it is our turn."""
        if not self._listens:
            return None
        return msgspec.msgpack.encode(Challenge(MAGIC, self._nonce))

    def receive(self, frame: bytes | memoryview) -> bytes | None:
        """What to answer to a frame, if anything; raises NotTrusted."""
        try:
            if self._listens:
                return self._prove(_PROOF.decode(frame))
            if self._theirs is None:
                return self._answer(_CHALLENGE.decode(frame))
            self._check(_WELCOME.decode(frame))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise NotTrusted("the other end is not a stream of this program") from None
        return None

    def _answer(self, challenge: Challenge) -> bytes:
        if challenge.magic != MAGIC or len(challenge.nonce) != NONCE:
            raise NotTrusted(f"the other end speaks {challenge.magic[:40]!r} instead of {MAGIC!r}")
        self._theirs = challenge.nonce
        code = self._code("dials", challenge.nonce, self._nonce, self._name)
        return msgspec.msgpack.encode(Proof(self._nonce, self._name, code))

    def _prove(self, proof: Proof) -> bytes:
        if len(proof.nonce) != NONCE or len(proof.name) > MAX_NAME:
            raise NotTrusted("the other end sent a proof of the wrong size")
        code = self._code("dials", self._nonce, proof.nonce, proof.name)
        if not hmac.compare_digest(code, proof.code):
            raise NotTrusted("the other end has another token; give all processes the same one")
        self.peer = proof.name
        code = self._code("listens", self._nonce, proof.nonce, self._name)
        return msgspec.msgpack.encode(Welcome(self._name, code))

    def _check(self, welcome: Welcome) -> None:
        assert self._theirs is not None
        code = self._code("listens", self._theirs, self._nonce, welcome.name)
        if not hmac.compare_digest(code, welcome.code):
            raise NotTrusted("the other end has another token; give all processes the same one")
        self.peer = welcome.name

    def _code(self, role: str, listener: bytes, dialler: bytes, name: str) -> bytes:
        said = msgspec.msgpack.encode((MAGIC, role, listener, dialler, name))
        return hmac.digest(self._token, said, "sha256")
