"""The outbound policy for client libraries that are built on aiohttp."""

import socket
from typing import Any

from backend.network.outbound import ForbiddenAddressError, outbound_policy


class GuardedSockets:
    """A ``socket_factory`` of aiohttp's connector, which is called with each address right before it is connected to.

    Libraries wrap the error that it raises, so ``forbidden`` keeps the reason; it is empty as long as there was none.
    """

    def __init__(self) -> None:
        self.forbidden = ""

    def __call__(self, address: Any) -> socket.socket:
        family, kind, protocol, _, target = address
        try:
            outbound_policy().check_address(str(target[0]))
        except ForbiddenAddressError as error:
            self.forbidden = str(error)
            raise PermissionError(self.forbidden) from None
        return socket.socket(family, kind, protocol)
