"""Envelope encryption: a key of its own for every value, wrapped with a key of the servers.

The servers' keys are made from `server.secret_key` and the lines of `server.secret_keyring`; a key is known
by a digest of itself, which is stored beside what it wraps. What a value belongs to is authenticated with it,
so that one row cannot be put in another's place.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hetuflow_core.errors import Conflict

_NONCE_BYTES = 12
_KEY_BYTES = 32
_WRAPPING = b"hetuflow key-encryption key, version 1"


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value nobody can read without the key it names; `wrapped_key` and `ciphertext` begin with a nonce."""

    key_id: str
    wrapped_key: bytes
    ciphertext: bytes = field(repr=False)


class Keyring:
    """The first key wraps; all of them unwrap."""

    def __init__(self, keys: Iterable[str]) -> None:
        # Derived, because `server.secret_key` signs other things too.
        derived = [_derived(key) for key in keys]
        self._keys = {_id_of(key): key for key in derived}
        self.current = _id_of(derived[0])

    @property
    def key_ids(self) -> list[str]:
        return list(self._keys)

    def seal(self, value: str, belongs_to: str) -> Sealed:
        own = secrets.token_bytes(_KEY_BYTES)
        bound = belongs_to.encode()
        return Sealed(
            self.current,
            _encrypt(self._keys[self.current], own, bound),
            _encrypt(own, value.encode(), bound),
        )

    def open(self, sealed: Sealed, belongs_to: str) -> str:
        bound = belongs_to.encode()
        return _decrypt(self._unwrap(sealed, bound), sealed.ciphertext, bound).decode()

    def rewrap(self, sealed: Sealed, belongs_to: str) -> Sealed:
        """The same value under the current key; the value itself is not decrypted."""
        bound = belongs_to.encode()
        own = self._unwrap(sealed, bound)
        return Sealed(self.current, _encrypt(self._keys[self.current], own, bound), sealed.ciphertext)

    def _unwrap(self, sealed: Sealed, bound: bytes) -> bytes:
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise Conflict(
                f"The key {sealed.key_id}, with which a secret is encrypted, is not known to this server: "
                "put it into server.secret_keyring.",
                code="secret.key_unknown",
            )
        return _decrypt(key, sealed.wrapped_key, bound)


def _derived(key: str) -> bytes:
    return HKDF(SHA256(), length=_KEY_BYTES, salt=None, info=_WRAPPING).derive(key.encode())


def _id_of(key: bytes) -> str:
    return sha256(b"hetuflow key id" + key).hexdigest()[:16]


def _encrypt(key: bytes, data: bytes, bound: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, bound)


def _decrypt(key: bytes, data: bytes, bound: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):
        raise Conflict(
            "A stored secret is damaged or belongs elsewhere: set its value again.", code="secret.damaged"
        ) from None
