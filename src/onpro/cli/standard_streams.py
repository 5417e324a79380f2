"""Keep a command alive if standard output or error is closed or cannot be written."""

import os
import sys
from typing import Any, TextIO, cast


def open_closed_streams() -> None:
    """Open standard streams that are closed, to discard what is written there.

    Otherwise the next opened files would get their descriptors, and what is printed.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 # it stays


class Lossy:
    """A stream that discards everything once it cannot be written: a full disk, a lost terminal.

    A closed pipe is still an error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.loss = ""
        """Why it could not be written."""

    def as_text(self) -> TextIO:
        """Return itself, typed as a text stream."""
        return cast(TextIO, self)

    def write(self, text: str) -> int:
        """Write, or discard."""
        try:
            return self._stream.write(self._encodable(text))
        except BrokenPipeError:
            raise
        except OSError as error:
            self._lose(error)
            return len(text)

    def _encodable(self, text: str) -> str:
        """Return a text with escapes for what the stream cannot encode, such as file names."""
        encoding = self._stream.encoding or "utf-8"
        try:
            text.encode(encoding, self._stream.errors or "strict")
        except UnicodeEncodeError:
            return text.encode(encoding, "backslashreplace").decode(encoding)
        return text

    def flush(self) -> None:
        """Write through, or discard."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.loss = error.strerror or str(error)
        self.discard()

    def discard(self) -> None:
        """Discard what is not written yet, and all that follows."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
