"""Counted images: each goes to the innermost counter of its own thread."""

from threading import Thread

import pytest

from onpro.nn.counter import ImageCounter, count_images, counting_images


def test_images_inside_are_counted_and_others_are_not() -> None:
    count_images(5)
    with counting_images() as counter:
        count_images(3)
        count_images(4)
    count_images(5)
    assert counter.images == 7


def test_a_nested_counter_takes_its_images_from_the_outer_one() -> None:
    with counting_images() as outer:
        count_images(1)
        with counting_images() as inner:
            count_images(10)
        count_images(2)
    assert (outer.images, inner.images) == (3, 10)


def test_an_error_inside_gives_the_outer_counter_its_place_back() -> None:
    with counting_images() as outer:
        with pytest.raises(ZeroDivisionError), counting_images():
            raise ZeroDivisionError
        count_images(2)
    assert outer.images == 2


def test_threads_count_apart() -> None:
    counters: dict[int, ImageCounter] = {}

    def count(images: int) -> None:
        count_images(1000)  # a thread does not inherit the counter of the one that starts it
        with counting_images() as counters[images]:
            for _ in range(100):
                count_images(images)

    with counting_images() as main:
        threads = [Thread(target=count, args=(images,)) for images in (1, 2, 3)]
        for thread in threads:
            thread.start()
        count_images(7)
        for thread in threads:
            thread.join()
    assert main.images == 7
    assert {images: counter.images for images, counter in counters.items()} == {
        1: 100,
        2: 200,
        3: 300,
    }
