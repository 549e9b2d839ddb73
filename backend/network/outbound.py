"""Where users' addresses may lead: nowhere inside the operator's own network, unless the operator allows it.

Every host that a user can name is checked here when it is saved, and every address that is about
to be connected to is checked again, so that a name that leads elsewhere tomorrow gains nothing.
"""

import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from backend.settings import platform_settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ForbiddenAddressError(Exception):
    """An address that this installation does not connect to; the message says how it may be allowed."""


class OutboundPolicy:
    """All addresses of the public internet, and the networks in ``allowed``."""

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    def check_address(self, text: str) -> None:
        """An IP address that is about to be connected to. Raises ForbiddenAddressError."""
        address = _unwrapped(ipaddress.ip_address(text.partition("%")[0]))
        if any(address.version == network.version and address in network for network in self._allowed):
            return
        # Shared address space (100.64.0.0/10) is neither global nor private.
        if not address.is_global or address.is_multicast or address.is_reserved:
            raise ForbiddenAddressError(
                f"{address} is not an address of the public internet. If connecting to it is intended, an operator "
                "can allow its network with HEADRACE_OUTBOUND_ALLOW."
            )

    def check_host(self, host: str) -> None:
        """A host that a user names. One that cannot be resolved now is not refused: it is checked when
        it is connected to. Raises ForbiddenAddressError."""
        try:
            # As connect() would read it: decimal, octal and hexadecimal forms included.
            found: list[Any] = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        for *_, address in found:
            self.check_address(str(address[0]))


@lru_cache
def outbound_policy() -> OutboundPolicy:
    """The installation's. Raises ValueError when HEADRACE_OUTBOUND_ALLOW is not a list of networks."""
    allowed = platform_settings().outbound_allow
    return OutboundPolicy(ipaddress.ip_network(part.strip()) for part in allowed.split(",") if part.strip())


def _unwrapped(address: Address) -> Address:
    """The IPv4 address inside an IPv6 address that leads to one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address.teredo is not None:
            return address.teredo[1]
        if address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
