"""Mail server on this machine that speaks SMTP, with TLS and passwords, and keeps what it gets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import ipaddress
import ssl
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class MailServer:
    """Runs in the test's event loop.

    Args:
        folder: for its certificate.
        offers_tls: whether it knows STARTTLS.
        busy: how many connections it turns away first.
    """

    def __init__(self, folder: Path, *, offers_tls: bool = True, busy: int = 0) -> None:
        self.certificate = folder / "mail-server.pem"
        self.taken: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.logins: list[bytes] = []
        self.was_encrypted = False
        self.asked = 0
        self.password = b"\0me\0open sesame"
        self._offers_tls = offers_tls
        self._busy = busy
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _write_certificate(self.certificate)
        self._context.load_cert_chain(self.certificate)

    async def start(self) -> int:
        """Returns its port."""
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        if self.asked <= self._busy:
            writer.write(b"421 busy\r\n")
            writer.close()
            return
        writer.write(b"220 here\r\n")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # who dislikes it hangs up
            await self._listen(reader, writer)
        writer.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            word = line.strip().upper()
            if word.startswith(b"EHLO"):
                tls = b"250-STARTTLS\r\n" if self._offers_tls else b""
                writer.write(b"250-here\r\n" + tls + b"250 AUTH PLAIN\r\n")
            elif word == b"STARTTLS":
                writer.write(b"220 go on\r\n")
                await writer.start_tls(self._context)
                self.was_encrypted = True
            elif word.startswith(b"AUTH PLAIN"):
                self.logins.append(base64.b64decode(line.split()[2]))
                is_right = self.logins[-1] == self.password
                writer.write(b"235 ok\r\n" if is_right else b"535 not me:open sesame\r\n")
            elif word.startswith(b"RCPT"):
                self.recipients.append(line.decode().split("<")[1].split(">")[0])
                writer.write(b"250 ok\r\n")
            elif word == b"DATA":
                writer.write(b"354 go on\r\n")
                content = await reader.readuntil(b"\r\n.\r\n")
                message = message_from_bytes(content[:-3], policy=policy.default)
                assert isinstance(message, EmailMessage)
                self.taken.append(message)
                writer.write(b"250 taken\r\n")
            else:
                writer.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")


def _write_certificate(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
