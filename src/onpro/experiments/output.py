"""Files that the user asks for: reports, figures, measurements."""

import os
from pathlib import Path

from onpro.errors import UserError
from onpro.files import replacing


def save(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, so that a full disk leaves an older one as it was.

    What is no file, such as /dev/stdout, is written to as it is.
    """
    try:
        if path.exists() and not path.is_file():
            _write_through(path, content)
        else:
            with replacing(path) as file:
                file.write(content)
    except BrokenPipeError:
        raise  # whoever read it has gone
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot write {path}: {reason.lower()}.") from None


def _write_through(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # else a FIFO waits for a reader
    os.set_blocking(handle, True)
    with open(handle, "wb") as file:  # noqa: PTH123 # a descriptor has no path
        file.write(content)
