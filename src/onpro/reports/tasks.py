"""Which tasks of a long stream a table has room for."""

MOST = 10


def shown_tasks(count: int) -> list[int]:
    """All tasks where there are few, else some at equal distances, the last among them.

    >>> shown_tasks(3), shown_tasks(100)
    ([0, 1, 2], [9, 19, 29, 39, 49, 59, 69, 79, 89, 99])
    """
    return [(k + 1) * count // MOST - 1 for k in range(MOST)] if count > MOST else [*range(count)]
