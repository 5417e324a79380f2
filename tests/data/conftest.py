"""A network of one folder, and a folder for what comes from it."""

import hashlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from socket import gaierror
from urllib.error import URLError
from urllib.request import BaseHandler, Request, build_opener, install_opener

import pytest

from onpro.data.download import Archive


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def as_published(file: Path) -> Archive:
    """A file on the network, with the size and the checksum it has now."""
    return Archive(file.name, file.stat().st_size, md5(file), f"web:{file.name}")


class Response(BytesIO):
    """A file as urllib hands it over."""

    def __init__(self, url: str, body: bytes) -> None:
        super().__init__(body)
        self.url, self.length = url, len(body)


class Web(BaseHandler):
    """A network of one folder: addresses web:NAME mean its files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def web_open(self, request: Request) -> Response:
        file = self.root / request.full_url.removeprefix("web:")
        if not file.is_file():
            raise URLError(gaierror(-2, "no such host"))
        return Response(request.full_url, file.read_bytes())


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
