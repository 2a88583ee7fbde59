"""Certificates made for a test: an authority, and what it has signed."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its private key."""

    cert: Path
    key: Path


@dataclass
class Authority:
    folder: Path
    name: str = "authority"
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ca = self.folder / f"{self.name}.crt"
        builder = _builder(self.name, self.name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self._write(self.ca, builder.sign(self._key, hashes.SHA256()))

    def sign(self, name: str, *, host: str = "127.0.0.1", serial: int | None = None) -> Pair:
        """A certificate for this host, or for a client, under a name of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(name, self.name, key, serial=serial).add_extension(names, critical=False)
        signed = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        self._write(pair.cert, signed)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def _write(self, file: Path, certificate: x509.Certificate) -> None:
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, *, serial: int | None = None
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
