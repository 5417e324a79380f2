import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onpro.data import Request, find, load, register, registry, sources
from onpro.data.imageset import ImageSet
from onpro.data.tiny import tiny
from onpro.errors import UserError


def run_python(code: str, *, path: Path | None = None) -> str:
    """Standard output of a fresh interpreter."""
    lines = ["import sys"] if path is None else ["import sys", f"sys.path.insert(0, {str(path)!r})"]
    script = "\n".join([*lines, code])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.strip()


def test_all_built_in_sources_are_listed_by_name() -> None:
    names = [source.name for source in sources()]
    assert names == sorted(names)
    assert {"cifar10", "cifar100", "digits", "folder", "tiny", "tinyimagenet"} <= set(names)


@pytest.mark.parametrize("name", ["digits", "tiny"])
def test_the_description_of_a_source_is_true_of_its_data(name: str) -> None:
    source, data = find(name), load(name)
    assert len(data.classes) == source.classes
    assert data.image_shape == (3, source.image_size, source.image_size)
    assert not source.download


@pytest.mark.parametrize(
    ("name", "classes", "tasks"),
    [
        ("digits", 10, 5),
        ("cifar10", 10, 5),
        ("cifar100", 100, 10),
        ("tinyimagenet", 200, 100),
        ("folder:birds", 9, 4),
        ("folder:birds", 2, 1),
        ("folder:birds", 1, 1),
    ],
)
def test_default_number_of_tasks(name: str, classes: int, tasks: int) -> None:
    assert find(name).tasks_for(classes) == tasks


def test_the_set_for_tests_is_marked() -> None:
    assert [source.name for source in sources() if source.for_tests] == ["tiny"]


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UserError, match="no data set 'cifar1'; did you mean 'cifar10'"):
        load("cifar1")


def test_a_folder_is_written_with_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no data set 'photos'; for the folder write folder:photos"):
        load("photos")


@pytest.mark.parametrize("limit", [0, -2])
def test_a_limit_below_one_is_refused_before_anything_is_loaded(limit: int) -> None:
    with pytest.raises(UserError, match="at least 1"):
        load("folder:nowhere", limit_per_class=limit)


def test_any_source_is_limited() -> None:
    data = load("digits", limit_per_class=3)
    assert data.train.labels.bincount().tolist() == [3] * 10
    assert data.train.images.equal(load("digits").limit_per_class(3).train.images)


def test_a_source_without_an_argument_takes_none() -> None:
    with pytest.raises(UserError, match="no data set 'digits:big'"):
        load("digits:big")


@pytest.mark.parametrize("name", ["folder", "folder:"])
def test_a_folder_needs_its_path(name: str) -> None:
    with pytest.raises(UserError, match="folder:PATH"):
        load(name)


def test_any_source_comes_in_the_size_asked_for() -> None:
    data = load("digits", image_size=16)
    assert data.image_shape == (3, 16, 16)
    assert data.test.images.shape[2:] == (16, 16)
    assert data.train.images.max() > 200


@pytest.mark.parametrize(
    ("any_size", "given", "told"),
    [(True, None, 24), (True, 16, 16), (False, None, None), (False, 16, 16)],
)
def test_a_source_of_images_of_any_size_is_told_its_default(
    monkeypatch: pytest.MonkeyPatch, any_size: bool, given: int | None, told: int | None
) -> None:
    monkeypatch.setattr(registry, "_sources", {})
    sizes = []

    @register("made-up", description="made up", image_size=24, any_size=any_size)
    def made_up(request: Request) -> ImageSet:
        sizes.append(request.image_size)
        return tiny()

    load("made-up", image_size=given)
    assert sizes == [told]


@pytest.mark.parametrize("size", [0, -3, 100_000])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(UserError, match="image size"):
        load("digits", image_size=size)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="already"):
        register("digits", description="mine")(lambda request: load("tiny"))


@pytest.mark.parametrize("name", ["", "a:b"])
def test_a_name_that_could_not_be_asked_for_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="colon"):
        register(name, description="mine")


def test_listing_the_sources_imports_nothing_heavy() -> None:
    loaded = run_python(
        "import onpro.data\n"
        "onpro.data.sources()\n"
        "print({'torch', 'torchvision', 'sklearn', 'PIL', 'numpy'} & sys.modules.keys())"
    )
    assert loaded == "set()"


@pytest.fixture
def third_party(tmp_path: Path) -> Callable[[str], Path]:
    """Install a package of one module with an entry point; gives the folder for the path."""

    def install(module: str) -> Path:
        (tmp_path / "birdsong.py").write_text(module)
        info = tmp_path / "birdsong-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: birdsong\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[onpro.datasets]\nbirdsong = birdsong\n")
        return tmp_path

    return install


def test_a_third_partys_source_is_listed_and_loaded(third_party: Callable[[str], Path]) -> None:
    path = third_party(
        "from onpro.data import load, register\n"
        "@register('birdsong', description='spectrograms', argument='YEAR')\n"
        "def birdsong(request):\n"
        "    print(request.argument, request.seed)\n"
        "    return load('tiny', seed=request.seed)\n"
    )
    code = (
        "from onpro.data import load, sources\n"
        "print('birdsong:YEAR' in [source.usage for source in sources()])\n"
        "print(load('birdsong:2023', seed=4, image_size=8).image_shape)\n"
    )
    assert run_python(code, path=path) == "True\n2023 4\n(3, 8, 8)"


def test_images_that_cannot_be_used_are_a_sentence(third_party: Callable[[str], Path]) -> None:
    path = third_party(
        "import numpy as np\n"
        "from onpro.data import register\n"
        "from onpro.data.arrays import from_arrays\n"
        "@register('birdsong', description='broken recordings')\n"
        "def birdsong(request):\n"
        "    broken = np.full((2, 8, 8, 3), np.nan)\n"
        "    return from_arrays(broken, [0, 1], broken, [0, 1])\n"
    )
    code = (
        "from onpro.data import load\n"
        "from onpro.errors import UserError\n"
        "try: load('birdsong')\n"
        "except UserError as error: print(error)\n"
    )
    assert run_python(code, path=path) == (
        "the data set 'birdsong' cannot be used: images must not contain NaN or infinite values."
    )


def test_a_broken_third_party_takes_no_other_source_with_it(
    third_party: Callable[[str], Path],
) -> None:
    path = third_party("raise RuntimeError('out of tune')\n")
    code = (
        "import warnings\n"
        "from onpro.data import sources\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print('digits' in [source.name for source in sources()])\n"
        "print('birdsong' in str(caught[0].message), 'out of tune' in str(caught[0].message))\n"
    )
    assert run_python(code, path=path) == "True\nTrue True"
