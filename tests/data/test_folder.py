import errno
import os
import struct
import subprocess
import sys
import zlib
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from onpro.data import decode, load, progress
from onpro.data.folder import load_folder
from onpro.data.image_files import SUFFIXES
from onpro.data.imageset import ImageSet, measure
from onpro.errors import UserError


def save(
    path: Path, colour: str | tuple[int, ...] = "red", size: tuple[int, int] = (40, 40)
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """A folder of two classes, 10 and 3 images, each image of its own grey level."""
    root = tmp_path / "birds"
    for name, count in (("wren", 3), ("owl", 10)):
        for i in range(count):
            save(root / name / f"{i:02}.png", (20 * i + len(name),) * 3)
    return root


def small(path: Path, size: int = 8, seed: int = 0) -> ImageSet:
    return load(f"folder:{path}", image_size=size, seed=seed)


def levels(data: ImageSet, part: str) -> list[int]:
    images: torch.Tensor = getattr(data, part).images
    return [int(level) for level in images[:, 0, 0, 0]]


def only_image(path: Path, size: int = 8) -> torch.Tensor:
    """What becomes of one image file: (3, size, size)."""
    other = path.parent.parent / "other"
    save(other / "a.png")
    save(other / "b.png")
    twin = path.with_name("twin" + path.suffix)
    twin.write_bytes(path.read_bytes())
    data = small(path.parent.parent, size)
    return data.train.images[data.train.labels == data.classes.index(path.parent.name)][0]


def test_a_fifth_of_each_class_and_at_least_one_image_is_the_test_set(birds: Path) -> None:
    data = small(birds)
    assert data.classes == ("owl", "wren")
    assert data.train.labels.tolist() == [0] * 8 + [1] * 2
    assert data.test.labels.tolist() == [0] * 2 + [1]
    together = sorted(levels(data, "train") + levels(data, "test"))
    assert together == sorted([20 * i + 3 for i in range(10)] + [20 * i + 4 for i in range(3)])


def test_the_seed_decides_the_split(birds: Path) -> None:
    splits = {tuple(levels(small(birds, seed=seed), "test")) for seed in range(8)}
    assert len(splits) > 1
    assert levels(small(birds, seed=3), "test") == levels(small(birds, seed=3), "test")


def test_images_come_in_the_order_of_their_names(birds: Path) -> None:
    data = small(birds)
    owls = levels(data, "train")[:8]
    assert owls == sorted(owls)


def test_only_images_within_the_limit_are_decoded(birds: Path) -> None:
    whole = small(birds)
    kept = set(levels(whole.limit_per_class(2), "train") + levels(whole, "test"))
    for file in (birds / "owl").iterdir():
        if int(file.stem) * 20 + 3 not in kept:
            file.write_text("not decoded")
    data = load(f"folder:{birds}", image_size=8, limit_per_class=2)
    assert data.train.images.equal(whole.limit_per_class(2).train.images)
    assert data.test.images.equal(whole.test.images)


def test_a_folder_with_its_own_split_is_taken_as_it_is(tmp_path: Path) -> None:
    for part, name, level in (
        ("train", "a", 10),
        ("train", "b", 20),
        ("test", "a", 30),
        ("test", "b", 40),
    ):
        save(tmp_path / part / name / "x.png", (level,) * 3)
    data = small(tmp_path)
    assert levels(data, "train") == [10, 20]
    assert levels(data, "test") == [30, 40]
    assert data.classes == ("a", "b")


def test_the_name_of_the_data_is_that_of_the_folder(birds: Path) -> None:
    assert small(birds).name == "folder-birds"


@pytest.mark.parametrize("limit", ["8", "0"])
def test_names_are_logged_as_plain_text(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: str,
) -> None:
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    monkeypatch.setenv("ONPRO_IMAGE_MEMORY", limit)
    root = tmp_path / "birds\x1b]0;title\x07"
    for name in ("wren\x1b[2J", "owl"):
        for i in range(2):
            save(root / name / f"{i}.png")
    small(root)
    said = [record.getMessage() for record in caplog.records]
    assert any("wren\\x1b[2J 1 + 1" in line for line in said)
    assert all(line.isprintable() for line in said)


def test_images_are_32_pixels_wide_by_default(birds: Path) -> None:
    assert load(f"folder:{birds}").image_shape == (3, 32, 32)


def test_statistics_are_those_of_the_training_images(birds: Path) -> None:
    data = small(birds)
    assert (data.mean, data.std) == measure(data.train.images)


def test_hidden_files_and_files_that_are_no_images_are_passed_over(birds: Path) -> None:
    before = small(birds)
    (birds / "owl" / "notes.txt").write_text("hoo")
    (birds / "owl" / ".thumb.png").write_text("not an image")
    (birds / "owl" / "more.png").mkdir()
    (birds / ".cache").mkdir()
    (birds / "README.md").write_text("owls and wrens")
    after = small(birds)
    assert after.classes == before.classes
    assert after.train.images.equal(before.train.images)


def test_endings_may_be_capitals(tmp_path: Path) -> None:
    for name in "ab":
        for i in range(2):
            save(tmp_path / name / f"{i}.JPG")
    assert len(small(tmp_path).train) == 2


def test_the_middle_is_cropped_and_nothing_is_distorted(tmp_path: Path) -> None:
    wide = np.zeros((40, 120, 3), np.uint8)
    wide[:, 40:80] = 200
    path = tmp_path / "wide" / "0.png"
    path.parent.mkdir()
    Image.fromarray(wide).save(path)
    middle = only_image(path)
    assert (middle[..., 1:-1] == 200).all()
    assert (middle > 150).all()


def test_resizing_averages_instead_of_picking_pixels(tmp_path: Path) -> None:
    board = np.indices((64, 64)).sum(0) % 2 * 255
    path = tmp_path / "board" / "0.png"
    path.parent.mkdir()
    Image.fromarray(board.astype(np.uint8)).save(path)
    inner = only_image(path)[:, 1:-1, 1:-1].float()
    assert (inner - 127.5).abs().max() < 3


def test_small_images_are_enlarged(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0.png", (9, 8, 7), size=(2, 1))
    assert only_image(tmp_path / "a" / "0.png")[:, 0, 0].tolist() == [9, 8, 7]


def test_a_turned_photograph_stands_upright(tmp_path: Path) -> None:
    half = np.zeros((16, 16, 3), np.uint8)
    half[:8] = 255
    exif = Image.Exif()
    exif[0x0112] = 3
    path = tmp_path / "turned" / "0.png"
    path.parent.mkdir()
    Image.fromarray(half).save(path, exif=exif)
    upright = only_image(path)
    assert upright[:, 0].max() == 0
    assert upright[:, -1].min() == 255


def pixel_of(image: Image.Image, tmp_path: Path, suffix: str = ".png") -> list[int]:
    path = tmp_path / "kind" / f"0{suffix}"
    path.parent.mkdir()
    image.save(path)
    pixel: list[int] = only_image(path)[:, 4, 4].tolist()
    return pixel


def test_grey(tmp_path: Path) -> None:
    assert pixel_of(Image.new("L", (9, 9), 77), tmp_path) == [77, 77, 77]


def test_black_and_white(tmp_path: Path) -> None:
    assert pixel_of(Image.new("1", (9, 9), 1), tmp_path) == [255, 255, 255]


def test_palette(tmp_path: Path) -> None:
    image = Image.new("P", (9, 9), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    assert pixel_of(image, tmp_path) == [10, 20, 30]


@pytest.mark.parametrize(
    ("alpha", "expected"), [(0, [255, 255, 255]), (255, [0, 0, 200]), (128, [127, 127, 227])]
)
def test_what_is_transparent_becomes_white(tmp_path: Path, alpha: int, expected: list[int]) -> None:
    assert pixel_of(Image.new("RGBA", (9, 9), (0, 0, 200, alpha)), tmp_path) == expected


def test_grey_with_transparency(tmp_path: Path) -> None:
    assert pixel_of(Image.new("LA", (9, 9), (50, 0)), tmp_path) == [255, 255, 255]


def test_palette_with_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (9, 9), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.info["transparency"] = 1
    assert pixel_of(image, tmp_path) == [255, 255, 255]


def test_colours_of_print(tmp_path: Path) -> None:
    assert pixel_of(Image.new("CMYK", (9, 9), (255, 0, 0, 0)), tmp_path, ".tif") == [0, 255, 255]


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path: Path, suffix: str) -> None:
    image = Image.fromarray(np.full((9, 9), 100 * 257, np.uint16))
    assert pixel_of(image, tmp_path, suffix) == [100, 100, 100]


def test_pixels_without_a_known_range_are_refused(tmp_path: Path) -> None:
    image = Image.fromarray(np.full((9, 9), 0.5, np.float32))
    with pytest.raises(UserError, match=r"\.tif.*no known range"):
        pixel_of(image, tmp_path, ".tif")


@pytest.mark.parametrize("kind", ["text", "cut", "empty"])
def test_a_damaged_image_is_named(birds: Path, kind: str) -> None:
    file = birds / "owl" / "04.png"
    content = file.read_bytes()
    damaged = {"text": b"this is no image", "cut": content[: len(content) // 2], "empty": b""}[kind]
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=r"04\.png cannot be read"):
        small(birds)


@pytest.mark.parametrize("side", [60000, 12000, 8200])
def test_an_image_of_absurd_size_is_named(birds: Path, side: int) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    (birds / "owl" / "bomb.png").write_bytes(bomb)
    with pytest.raises(UserError, match=r"bomb\.png has too many pixels"):
        small(birds)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_folder(tmp_path / "nowhere")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    with pytest.raises(UserError, match="is a file"):
        load_folder(tmp_path / "a.png")


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 0 class folders"):
        load_folder(tmp_path)


@pytest.mark.parametrize("parts", [(), ("train", "test")])
def test_a_single_class(tmp_path: Path, parts: tuple[str, ...]) -> None:
    for part in parts or ("",):
        save(tmp_path / part / "owl" / "0.png")
    with pytest.raises(UserError, match="has 1 class folder "):
        load_folder(tmp_path)


@pytest.mark.parametrize("count", [0, 1])
def test_a_class_with_too_few_images_to_split(birds: Path, count: int) -> None:
    (birds / "robin").mkdir()
    for i in range(count):
        save(birds / "robin" / f"{i}.png")
    with pytest.raises(UserError, match=f"'robin' has {count} image.*needs 2"):
        load_folder(birds)


def test_a_test_class_without_training_images(tmp_path: Path) -> None:
    for part, name in (("train", "a"), ("train", "b"), ("test", "a"), ("test", "c")):
        save(tmp_path / part / name / "0.png")
    with pytest.raises(UserError, match=r"'c' is in .*test but not in .*train"):
        load_folder(tmp_path)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_class_without_images_in_one_part(tmp_path: Path, part: str) -> None:
    for each in ("train", "test"):
        for name in "ab":
            save(tmp_path / each / name / "0.png")
    (tmp_path / part / "b" / "0.png").unlink()
    with pytest.raises(UserError, match=f"'b' has no image in .*{part}"):
        load_folder(tmp_path)


def test_a_program_that_is_called_an_image_is_not_run(
    birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow hands EPS to Ghostscript, whatever the file is called."""
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_: pytest.fail("it was run"))
    (birds / "owl" / "z.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n"
    )
    with pytest.raises(UserError, match=r"z\.png cannot be read"):
        small(birds)


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_files_of_every_ending_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "birds" / "wren" / f"a{suffix}"
    save(path, "white")
    assert (only_image(path) == 255).all()


PEAK = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from onpro.data import decode
most, *files = sys.argv[1:]
if int(most):
    decode.DECODING = decode.Quota(int(most))
def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
with ThreadPoolExecutor(6) as pool:
    for file in files:
        list(pool.map(decode.decode_image, 6 * [decode.Encoded(file, file)], 6 * [8]))
print(peak() - before)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the unit of a peak is another")
@pytest.mark.parametrize(
    ("side", "most", "bytes_at_peak"),
    [
        pytest.param(4096, 2**24, 0.8e9, id="small"),
        pytest.param(8192, 0, 2e9, id="large", marks=pytest.mark.slow),
    ],
)
def test_images_that_unfold_are_not_decoded_all_at_once(
    tmp_path: Path, side: int, most: int, bytes_at_peak: float
) -> None:
    """Six small files, each of which takes a hundred times its size and more when decoded."""
    files = []
    for mode in ("LA", "I;16"):
        files.append(tmp_path / f"{mode[0]}.png")
        Image.new(mode, (side, side)).save(files[-1])
    given = [sys.executable, "-c", PEAK, str(most), *map(str, files)]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert int(done.stdout) < bytes_at_peak, f"{int(done.stdout):,} bytes"


def test_conversions_by_strips_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).integers(0, 2**16, (17, 9), dtype=np.uint16)
    byte = (noise % 256).astype(np.uint8)
    rgba = np.stack([byte, byte.T.reshape(17, 9), 255 - byte, byte // 2], axis=2)
    coloured = Image.fromarray(rgba, "RGBA")
    palette = coloured.convert("RGB").quantize(9)
    palette.info["transparency"] = 3
    images = [Image.fromarray(noise), coloured, coloured.convert("LA"), palette]
    whole = [np.asarray(decode.as_rgb(image)) for image in images]
    monkeypatch.setattr(decode, "STRIP_PIXELS", 20)
    for image, expected in zip(images, whole, strict=True):
        np.testing.assert_array_equal(np.asarray(decode.as_rgb(image)), expected)


def test_links_that_lead_nowhere_or_back_and_pipes_are_passed_over(birds: Path) -> None:
    expected = small(birds).train.images
    (birds / "owl" / "loop.png").symlink_to("loop.png")
    (birds / "owl" / "gone.png").symlink_to("nothing.png")
    (birds / "owl" / "again").symlink_to(birds, target_is_directory=True)
    os.mkfifo(birds / "owl" / "pipe.png")
    (birds / "self").symlink_to("self")
    assert torch.equal(small(birds).train.images, expected)
    (birds / "around").symlink_to(birds, target_is_directory=True)
    with pytest.raises(UserError, match="'around' has 0 images"):
        small(birds)


@pytest.mark.parametrize("closed", ["birds", "owl"])
def test_a_folder_without_rights_is_named(
    birds: Path, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = birds if closed == "birds" else birds / closed

    def denied(path: Any, *given: Any, original: Any) -> Any:
        if Path(path) == place:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *given)

    monkeypatch.setattr(Path, "iterdir", partialmethod(denied, original=Path.iterdir))
    monkeypatch.setattr(os, "scandir", partial(denied, original=os.scandir))
    with pytest.raises(UserError, match=f"{closed} cannot be read: Permission denied"):
        small(birds)
    monkeypatch.undo()

    def unseen(path: Any, *given: Any, original: Any = os.stat, **more: Any) -> Any:
        if isinstance(path, (str, Path)) and Path(path).parent == place:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *given, **more)

    monkeypatch.setattr(os, "stat", unseen)  # it may be listed, but not looked into
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        small(birds)
