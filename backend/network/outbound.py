"""The policy on outbound connections: none into the operator's own network, unless the operator allows it.

Every host that a user enters is checked when it is saved, and every address is checked again before it is
connected to, so that a name that resolves to another address later gains nothing (DNS rebinding).
"""

import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from backend.settings import platform_settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA_ADDRESS = "169.254.169.254"
_METADATA_NAMES = {
    "metadata",
    "metadata.goog",
    "metadata.google.internal",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
}
_METADATA: tuple[Network, ...] = tuple(
    map(ipaddress.ip_network, ("fd00:ec2::254/128", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32"))
)
"""Addresses at which clouds tell machines their credentials, beside those that are link-local."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ForbiddenAddressError(Exception):
    """An address that this installation does not connect to; the message says how to allow it."""


class OutboundPolicy:
    """Permits all addresses of the public internet, and those in the ``allowed`` networks."""

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    def check_address(self, text: str) -> None:
        """Checks an IP address before it is connected to. Raises ForbiddenAddressError."""
        address = _parsed(text)
        if _is_in(address, self._allowed):
            return
        # Shared address space (100.64.0.0/10) is neither global nor private.
        if not address.is_global or address.is_multicast or address.is_reserved:
            raise ForbiddenAddressError(
                f"{address} is not an address of the public internet. If connecting to it is intended, an operator "
                "can allow its network with HEADRACE_OUTBOUND_ALLOW."
            )

    def check_host(self, host: str) -> None:
        """Checks a host that a user enters. Raises ForbiddenAddressError.

        A host that cannot be resolved now is accepted; its address is checked when it is connected to.
        """
        try:
            # Interprets the host as connect() would, including decimal, octal and hexadecimal addresses.
            resolved: list[Any] = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        for *_, address in resolved:
            self.check_address(str(address[0]))

    def check_far_host(self, host: str) -> None:
        """Checks a host that is reached through another one, which looks its name up in its own network: private
        addresses are what a tunnel is for, but none that is link-local or a cloud's metadata service. Raises
        ForbiddenAddressError."""
        name = host.strip("[]").partition("%")[0].rstrip(".").lower()
        literal = _METADATA_ADDRESS if name in _METADATA_NAMES else name
        try:
            resolved: list[Any] = socket.getaddrinfo(
                literal, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        except (OSError, UnicodeError):
            return
        for address in (_parsed(str(found[0])) for *_, found in resolved):
            if (address.is_link_local or _is_in(address, _METADATA)) and not _is_in(address, self._allowed):
                raise ForbiddenAddressError(
                    f"{host} is link-local or a cloud's metadata service, which is not reached through a tunnel "
                    "either. If connecting to it is intended, an operator can allow its network with "
                    "HEADRACE_OUTBOUND_ALLOW."
                )

    def address_of(self, host: str) -> str:
        """The address to connect to, for clients that do not check it themselves: a second resolution of the name
        could lead elsewhere. Raises ForbiddenAddressError, and OSError when the host is unknown."""
        try:
            resolved: list[Any] = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        address = str(resolved[0][-1][0])
        self.check_address(address)
        return address


@lru_cache
def outbound_policy() -> OutboundPolicy:
    """The installation's policy. Raises ValueError when HEADRACE_OUTBOUND_ALLOW is not a list of networks."""
    allowed = platform_settings().outbound_allow
    return OutboundPolicy(ipaddress.ip_network(part.strip()) for part in allowed.split(",") if part.strip())


def _parsed(text: str) -> Address:
    return _unwrapped(ipaddress.ip_address(text.partition("%")[0]))


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that is embedded in an IPv6 address, if any; otherwise the address itself."""
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
