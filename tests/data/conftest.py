"""A network that consists of one folder, and a folder for downloads."""

import hashlib
from collections.abc import Iterator
from email.message import Message
from io import BytesIO
from pathlib import Path
from socket import gaierror
from urllib.error import URLError
from urllib.request import BaseHandler, Request, build_opener, install_opener

import pytest

WEB = "web://host/"
"""Address of the folder that is the network."""


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


class Response(BytesIO):
    """A file as urllib returns it."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.headers = Message()
        self.headers["Content-Length"] = str(len(body))


class Web(BaseHandler):
    """Serve the files of one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def web_open(self, request: Request) -> Response:
        file = self.root / request.full_url.removeprefix(WEB)
        if not file.is_file():
            raise URLError(gaierror(-2, "no such host"))
        return Response(file.read_bytes())


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Path]:
    """The folder that is the network."""
    folder = tmp_path / "web"
    folder.mkdir()
    install_opener(build_opener(Web(folder)))
    yield folder
    install_opener(build_opener())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder for data."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder
