"""The images of a task, of which a class can be erased."""

import torch

from onpro.memory.task_images import TaskImages


def test_a_class_is_erased_with_its_labels() -> None:
    task = TaskImages((3, 2, 2), torch.device("cpu"))
    batches = torch.tensor([[7, 5, 7], [5, 9, 9]])
    for labels in batches:
        task.add(labels.to(torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2), labels)
    task.remove(7)
    images, labels = task.whole_batches()
    assert labels.tolist() == [5, 5, 9, 9]
    assert images[:, 0, 0, 0].tolist() == [5, 5, 9, 9]
