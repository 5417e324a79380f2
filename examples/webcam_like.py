"""Learn from a simulated camera and a person who labels its frames.

The classifier predicts each frame before it gets the label, then learns from it. Classes are not
announced. Run it with:  python examples/webcam_like.py
"""
# ruff: noqa: T201 # an example may print

import argparse
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from onpro import OnlineClassifier

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def camera(frames: int, seed: int) -> Iterator[tuple[npt.NDArray[np.uint8], list[str]]]:
    """Yield five frames at a time, and their labels; new classes appear one by one."""
    digits = load_digits()
    images = (digits.images * (255 / 16)).round().astype(np.uint8)
    rng = np.random.default_rng(seed)
    for shown in range(0, frames, 5):
        met = 2 + shown * len(WORDS) // frames
        candidates = np.flatnonzero(digits.target < min(met, len(WORDS)))
        chosen = rng.choice(candidates, 5)
        yield images[chosen], [WORDS[k] for k in digits.target[chosen]]


def main(frames: int = 1000, seed: int = 0) -> float:
    """Predict, get the label, learn; return the accuracy on the last quarter of the frames."""
    classifier = OnlineClassifier("er", memory=200, seed=seed, batch_size=5)
    right: list[bool] = []
    for images, answers in camera(frames, seed):
        if right:
            guesses = classifier.predict(images)
            right += [guess == answer for guess, answer in zip(guesses, answers, strict=True)]
        else:
            right += [False] * len(answers)
        classifier.partial_fit(images, answers)
        if len(right) % 100 == 0:
            recent = np.mean(right[-100:])
            known = len(classifier.classes_)
            print(f"{len(right):5} frames, {known:2} things known, last 100: {recent:.0%} right")
    return float(np.mean(right[-len(right) // 4 :]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    print(f"{main(**vars(parser.parse_args())):.0%} right at the end")
