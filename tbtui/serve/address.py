"""Where browsers find a served run."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from yarl import URL


@dataclass(frozen=True)
class PublicUrl:
    """Where a proxy passes it on."""

    page: URL

    @classmethod
    def parse(cls, text: str) -> PublicUrl:
        """Raises `ValueError` for what isn't one."""
        url = URL(text)
        if url.scheme not in ("http", "https") or not url.host or url.explicit_port == 0:
            raise ValueError("not the address of a page")
        if url.user is not None or url.password is not None:
            raise ValueError("a name and a password have no place in it")
        return cls(url.origin().with_path(url.raw_path.rstrip("/") + "/", encoded=True))

    @property
    def origin(self) -> str:
        """As browsers write it: in lower case, without a port that goes without saying."""
        return str(self.page.origin())

    @property
    def host(self) -> str:
        """As browsers ask for it."""
        return self.origin.partition("://")[2]

    @property
    def secure_host(self) -> str | None:
        return self.host if self.page.scheme == "https" else None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def pages(host: str, port: int, public: PublicUrl | None, token: str | None) -> list[str]:
    """The addresses to open, the one for most people first; with the token, if one is asked for."""
    urls = [] if public is None else [public.page]
    urls += [URL.build(scheme="http", host=name, port=port, path="/") for name in _names(host)]
    return [str(url if token is None else url.with_query(token=token)) for url in urls]


def _names(host: str) -> list[str]:
    """What to ask for, to reach an address that is listened on."""
    match host:
        case "0.0.0.0":
            return [socket.gethostname(), "127.0.0.1"]
        case "::":
            return [socket.gethostname(), "::1"]
        case _:
            return [host]
