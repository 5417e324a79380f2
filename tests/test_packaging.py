"""Wheel and sdist install into a clean environment, and work there."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import pytest

from onpro import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UV = shutil.which("uv")


def supported() -> list[str]:
    """Versions of Python that the classifiers name, oldest first."""
    named = re.findall(r"Python :: 3\.(\d+)", " ".join(PROJECT["classifiers"]))
    return [f"3.{minor}" for minor in sorted(map(int, named))]


@cache
def installed() -> dict[str, Path]:
    """Supported interpreters of this machine, also those of pyenv that are not active."""
    paths = [Path(sys.executable)]
    paths += [Path(found) for v in supported() if (found := shutil.which(f"python{v}"))]
    paths += sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    show = "import sys; print('{}.{}'.format(*sys.version_info[:2]))"
    ran = [
        (path, subprocess.run([path, "-c", show], capture_output=True, text=True, check=False))
        for path in paths
    ]
    known = {done.stdout.strip(): path for path, done in reversed(ran) if done.returncode == 0}
    return {version: known[version] for version in supported() if version in known}


def test_metadata_agree() -> None:
    assert PROJECT["requires-python"] == f">={supported()[0]}"
    extras = PROJECT["optional-dependencies"]
    named = set(re.findall(r"\w+", extras["all"][0].partition("[")[2]))
    assert named | {"all", "dev", "wandb"} == set(extras), "`all` has what users may want"
    for name in re.findall(
        r"onpro\[(\w+)\]", " ".join(p.read_text() for p in ROOT.glob("docs/*.md"))
    ):
        assert name in extras


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel, which is built from the sdist, and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    assert UV
    uv("build", "--out-dir", str(folder), str(ROOT))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def uv(*arguments: str) -> None:
    """Run uv, which never downloads a Python; skip the test where there is no network."""
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    command = [str(UV), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if re.search("error sending request|dns error|Failed to fetch", done.stderr):
        pytest.skip("no network")
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@pytest.mark.skipif(UV is None, reason="needs uv")
def test_packages_install_and_work_on_the_oldest_and_the_newest_python(
    built: dict[str, Path], tmp_path: Path
) -> None:
    with ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()
    assert {"onpro/py.typed", "onpro/reports/assets/page.html"} <= set(names)
    assert not [name for name in names if not name.startswith("onpro")]
    with tarfile.open(built["sdist"]) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames()}
    assert {"src", "tests", "docs", "examples", "CITATION.cff", "LICENSE"} <= tops
    assert "results" not in tops
    found = list(installed())
    for version, kind in {found[0]: "wheel", found[-1]: "sdist"}.items():
        environment = tmp_path / version
        uv("venv", "--python", str(installed()[version]), str(environment))
        uv("pip", "install", "--python", str(environment / "bin" / "python"), str(built[kind]))
        smoke(environment)
        shutil.rmtree(environment)  # gigabytes, where uv cannot link files


def smoke(environment: Path) -> None:
    """Run the installed command and package, far from the checkout."""

    def output(program: str, *arguments: str) -> str:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(environment / "bin" / program), *arguments]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=environment, env=clean
        )
        return done.stdout

    assert output("onpro", "--version") == f"onpro {__version__}\n"
    where = output("python", "-c", "import onpro; print(onpro.__file__)")
    assert where.startswith(str(environment))
    tried = ("run", "er", "--data", "tiny", "--limit-per-class", "8", "--memory", "10", "--json")
    assert json.loads(output("onpro", *tried))["method"] == "er"
    assert len(list(environment.glob("runs/*/result.json"))) == 1
