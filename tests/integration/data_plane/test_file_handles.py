"""Many HTTP outputs in one process."""

import asyncio
import json
import resource
import subprocess
import sys

import pytest
from aiohttp import web

from backend.settings import ROOT

FILES = 512
MEGABYTE = 1024 * 1024


@pytest.mark.parametrize("outputs", [1500, pytest.param(5000, marks=pytest.mark.long)])
async def test_outputs_share_their_connections(outputs: int) -> None:
    received: set[str] = set()

    async def answer(request: web.Request) -> web.Response:
        received.add(request.headers["X-Output"])
        return web.Response()

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0, backlog=1024).start()
    try:
        command = [sys.executable, "-m", "tests.integration.data_plane.http_outputs", str(runner.addresses[0][1])]
        process = await asyncio.create_subprocess_exec(
            *command, str(outputs), str(FILES), stdout=subprocess.PIPE, cwd=ROOT
        )
        async with asyncio.timeout(240):
            printed, _ = await process.communicate()
        result = json.loads(printed)
    finally:
        await runner.cleanup()
    print(f"{outputs} outputs: {result['files']} files, {result['memory'] / MEGABYTE:.0f} MiB more memory.")
    assert result["results"] == {"200": 2 * outputs}
    assert len(received) == outputs
    assert result["memory"] < 300 * MEGABYTE
    # Idle ones are evicted, and the last output that closes leaves nothing open.
    assert result["files"] < FILES // 2
    assert result["after"] < 20


def test_a_process_may_open_as_many_files_as_its_user() -> None:
    code = (
        "import resource; from backend.network.files import raise_file_limit; "
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)); "
        "raise_file_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True).stdout
    assert int(printed) == min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65_536)
