"""An administrator who types the commands of a documentation page, in its words."""

import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from tests.containers.project import Project

_BLOCK = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands(page: Path, heading: str) -> list[str]:
    """The commands below the heading, one a line."""
    section = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(f"{heading}\n")]
    lines = "".join(_BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    assert lines, f"There are no commands below {heading}."
    return lines


class Operator:
    """``folder`` is where the files of redirections are."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder

    def follow(self, page: Path, heading: str) -> None:
        """Runs each command, as Compose would."""
        for line in commands(page, heading):
            self.run(line)

    def run(self, line: str) -> None:
        words = shlex.split(line)
        with ExitStack() as files:
            stdin, words = self._redirected(words, "<", "rb", files)
            stdout, words = self._redirected(words, ">", "wb", files)
            assert words[:2] == ["docker", "compose"], words
            match words[2:]:
                case ["stop", *names]:
                    self._project.stop(*names)
                case ["up", "--detach", "--wait"]:
                    self._project.up()
                case ["run", "--rm", "--no-TTY", service, *arguments]:
                    self._project.run(service, arguments, stdin, stdout)
                case ["exec", "--no-TTY", service, *command]:
                    self._project.execute(service, command, stdin, stdout)
                case _:
                    raise AssertionError(f"This command is not known: {shlex.join(words)}")

    def _redirected(self, words: list[str], sign: str, mode: str, files: ExitStack) -> tuple[IO[bytes], list[str]]:
        if sign not in words:
            return files.enter_context(open("/dev/null", mode)), words
        at = words.index(sign)
        opened = files.enter_context((self._folder / words[at + 1]).open(mode))
        return opened, words[:at] + words[at + 2 :]
