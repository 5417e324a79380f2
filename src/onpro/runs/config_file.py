"""Read the configuration of a run from its `config.json`."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from onpro._version import __version__
from onpro.errors import UserError
from onpro.methods import method
from onpro.methods.former import settings_of_today
from onpro.runs.config import OPTIONAL, PLACE, SHORTCUT, RunConfig, digest
from onpro.runs.files import read_json
from onpro.streams import Disjoint, StreamKind, stream_kind
from onpro.user_file import UserFile
from onpro.validation import described, fits

NOTES = {"versions", "hardware", "identity", "experiment", "started"}
"""What `config.json` holds beside the configuration."""


def read_config(folder: Path) -> RunConfig:
    """Read the configuration of the run in a folder from its `config.json`."""
    path = folder / "config.json"
    if folder.is_file():
        raise UserError(f"{folder} is a file: name the folder of a run.")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.")
    if not path.exists():
        inside = any(folder.glob("*/config.json"))
        remedy = f"; name runs in it, such as {folder}/*" if inside else ""
        raise UserError(f"{folder} is not the folder of a run: it has no config.json{remedy}.")
    try:
        values = read_json(path)
    except UserError as error:
        raise UserError(f"{str(error)[:-1]}; start another run with onpro run.") from None
    try:
        return parse_config(values)
    except UserError as error:
        raise UserError(f"{path} cannot be used: {error}") from None


def parse_config(values: Any) -> RunConfig:
    """Return the configuration that the content of a `config.json` describes."""
    config, settings = _objects(values)
    for name in ("method", "stream"):
        _import_file(name, config.pop(f"{name}_file", None), config.pop(f"{name}_sha256", None))
    settings_type = method(config["method"]).settings_type
    known = {field.name for field in fields(settings_type)}
    settings = settings_of_today(config["method"], settings)
    types = get_type_hints(RunConfig) | {"data_dir": str | None}
    differ = _difference(
        config,
        set(types) - {"method_file", "stream_file"},
        optional={"stream", *PLACE, *OPTIONAL, *SHORTCUT},
    )
    differ += _difference(settings, known)
    if differ:
        raise UserError(f"{', '.join(differ)}{_writer(values)}.")
    for name, value in config.items():
        if name not in ("settings", "stream") and not fits(value, types[name]):
            raise UserError(f"{name} must be {described(types[name])}, not {value!r}.")
    data_dir = config.get("data_dir")
    read = RunConfig(
        **config
        | {
            "settings": settings_type(**{name: _tuples(v) for name, v in settings.items()}),
            "data_dir": Path(data_dir) if data_dir else None,
            "stream": _stream(config.get("stream")),
        }
    )
    # Older versions had other settings, so other identities, and older ones took no defaults away.
    written = {name: value for name, value in config.items() if name not in PLACE}
    identities = read.identity, digest(written | read.defaults_of_data()), digest(written)
    if values.get("identity", read.identity) not in identities:
        raise UserError(
            "it has been changed since the run began: undo that, or start another run with onpro "
            "run."
        )
    return read


def _import_file(name: str, path: Any, digest: Any) -> None:
    """Import the file that the run's method or kind of stream is in, if it is in one."""
    if path is None and digest is None:
        return
    if not (isinstance(path, str) and isinstance(digest, str)):
        raise UserError(f"{name}_file and {name}_sha256 must both be texts.")
    UserFile(Path(path), digest).require()


def _objects(values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration without notes on versions and hardware, and the settings in it."""
    if not isinstance(values, dict):
        raise UserError("it holds no object.")
    config = {name: value for name, value in values.items() if name not in NOTES}
    if not isinstance(config.get("method"), str):
        raise UserError("it names no method.")
    settings = config.get("settings")
    if not isinstance(settings, dict):
        raise UserError("it has no settings of the method.")
    return config, settings


def _stream(values: Any) -> StreamKind:
    """Return the kind of stream that a configuration names; without one it is disjoint."""
    if values is None:
        return Disjoint()
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise UserError("stream must be an object that names a kind.")
    settings = {name: value for name, value in values.items() if name != "kind"}
    return stream_kind(values["kind"], **settings)


def _writer(values: dict[str, Any]) -> str:
    """Return a clause on the version that wrote it, if it is another one."""
    noted = values.get("versions")
    writer = noted.get("onpro") if isinstance(noted, dict) else None
    if writer in (None, __version__):
        return ""
    return f": it was written by onpro {writer} and this is {__version__}; use that version"


def _difference(
    values: Mapping[str, Any], known: set[str], optional: set[str] | None = None
) -> list[str]:
    """Return the names that are unknown or missing."""
    unknown, missing = values.keys() - known, known - values.keys() - (optional or set())
    return [f"'{n}' is unknown" for n in sorted(unknown)] + [
        f"'{n}' is missing" for n in sorted(missing)
    ]


def _tuples(value: Any) -> Any:
    """Return tuples for lists: JSON has no tuples, and settings have no lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
