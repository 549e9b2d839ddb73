"""Azurite, Microsoft's emulator of Azure Blob Storage, from npm."""

from tests.infra import Server
from tests.npm_programs import npm_program
from tests.ports import free_ports
from tests.waiting import answers

[PORT] = free_ports(1)
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Both are fixed in the emulator, and public."""
ENDPOINT = f"http://127.0.0.1:{PORT}/{ACCOUNT}"


def azurite_server() -> Server:
    """Not yet started."""
    script, path = npm_program("azurite", "AZURITE_VERSION", "dist/src/blob/main.js", "--omit=optional")
    command = ["env", f"PATH={path}", "node", str(script), "--blobHost", "127.0.0.1"]
    command += ["--blobPort", str(PORT), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    return Server("azurite", [*command, "--skipApiVersionCheck"], lambda: answers(ENDPOINT, (400, 403)))
