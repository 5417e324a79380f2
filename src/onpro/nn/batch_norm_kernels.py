"""The kernels of `fused_batch_norm`, in Triton.

Maps are matrices: a row for each pixel, a column for each channel. Program (i, j) works on part i
of the rows, in the columns of tile j.
"""

import triton
import triton.language as tl

# Columns of what is known of a part: its first row, the end of its group, its tiles, its group.
FIRST_ROW, END_ROW, TILES, GROUP = map(tl.constexpr, range(4))
# Columns of what is known of a group: its parts, how many rows it has, and which is the first.
FIRST_PART, END_PART, ROWS, START = map(tl.constexpr, range(4))


@triton.jit
def sum_maps(
    x,
    partial,
    part_table,
    group_table,
    channels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums of x − x₀ and (x − x₀)² over the rows of a part, x₀ being the first row of its group.

    Shifted, because a mean far from zero would swallow the variance of plain sums of squares.
    """
    part = tl.program_id(0)
    about = part_table + part * 4
    first, end = tl.load(about + FIRST_ROW), tl.load(about + END_ROW)
    start = tl.load(group_table + tl.load(about + GROUP) * 4 + START)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    shift = tl.load(x + start.to(tl.int64) * channels + c, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    squares = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for tile in tl.range(tl.load(about + TILES), num_stages=STAGES):
        r = first + tile * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - shift[None, :]
        value = tl.where(mask, value, 0.0)
        total += value
        squares += value * value
    place = partial + part * 2 * channels + c
    tl.store(place, tl.sum(total, axis=0), mask=inside)
    tl.store(place + channels, tl.sum(squares, axis=0), mask=inside)


@triton.jit
def _add_up(partial, first, end, channels, c, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Both sums of the columns c over some parts."""
    one = tl.zeros([HEIGHT, WIDTH], tl.float32)
    other = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for start in range(first, end, HEIGHT):
        p = start + tl.arange(0, HEIGHT)
        mask = (p < end)[:, None] & inside[None, :]
        place = partial + p[:, None] * 2 * channels + c[None, :]
        one += tl.load(place, mask=mask, other=0.0)
        other += tl.load(place + channels, mask=mask, other=0.0)
    return tl.sum(one, axis=0), tl.sum(other, axis=0)


@triton.jit
def _statistics(x, partial, about, channels, c, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Mean, variance and number of rows of a group."""
    rows = tl.load(about + ROWS)
    first, end = tl.load(about + FIRST_PART), tl.load(about + END_PART)
    total, squares = _add_up(partial, first, end, channels, c, inside, HEIGHT, WIDTH)
    shifted = total / rows
    variance = tl.maximum(squares / rows - shifted * shifted, 0.0)
    first_row = x + tl.load(about + START).to(tl.int64) * channels
    mean = tl.load(first_row + c, mask=inside, other=0.0).to(tl.float32) + shifted
    return mean, variance, rows


@triton.jit(do_not_specialize=["groups"])
def normalise(
    x,
    added,
    y,
    partial,
    mean,
    scale,
    weight,
    bias,
    running_mean,
    running_var,
    batches,
    eps,
    momentum,
    groups,
    ADDED: tl.constexpr,
    ACTIVATE: tl.constexpr,
    part_table,
    group_table,
    channels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The result y = relu((x − mean)·scale·weight + bias + added), scale = 1/√(variance + ε).

    The first program of a column keeps mean and scale of all groups, and moves the running
    statistics towards them, group after group.
    """
    part = tl.program_id(0)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    if part == 0:
        running_m = tl.load(running_mean + c, mask=inside)
        running_v = tl.load(running_var + c, mask=inside)
        for g in range(groups):
            centre, variance, rows = _statistics(
                x, partial, group_table + g * 4, channels, c, inside, HEIGHT, WIDTH
            )
            tl.store(mean + g * channels + c, centre, mask=inside)
            tl.store(scale + g * channels + c, tl.rsqrt(variance + eps), mask=inside)
            unbiased = variance * rows / tl.maximum(rows - 1, 1)
            running_m += momentum * (centre - running_m)
            running_v += momentum * (unbiased - running_v)
        tl.store(running_mean + c, running_m, mask=inside)
        tl.store(running_var + c, running_v, mask=inside)
        if tl.program_id(1) == 0:
            tl.store(batches, tl.load(batches) + groups)
    about = part_table + part * 4
    first, end = tl.load(about + FIRST_ROW), tl.load(about + END_ROW)
    centre, variance, rows = _statistics(
        x, partial, group_table + tl.load(about + GROUP) * 4, channels, c, inside, HEIGHT, WIDTH
    )
    factor = tl.rsqrt(variance + eps) * tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    for tile in tl.range(tl.load(about + TILES), num_stages=STAGES):
        r = first + tile * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        value = centred * factor[None, :] + b[None, :]
        if ADDED:
            value += tl.load(added + at, mask=mask, other=0.0).to(tl.float32)
        if ACTIVATE:
            value = tl.maximum(value, 0.0)
        tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def sum_gradients(
    x,
    gradient,
    other,
    y,
    written,
    partial,
    mean,
    scale,
    weight,
    bias,
    OTHER: tl.constexpr,
    RECOMPUTE: tl.constexpr,
    MASK: tl.constexpr,
    WRITE: tl.constexpr,
    part_table,
    group_table,
    channels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums of g and g·x̂ over the rows of a part, g the gradient behind the ReLU.

    The ReLU was open where the normalised x is above 0 (RECOMPUTE), or where y is (MASK).
    """
    part = tl.program_id(0)
    about = part_table + part * 4
    first, end, group = tl.load(about + FIRST_ROW), tl.load(about + END_ROW), tl.load(about + GROUP)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    centre = tl.load(mean + group * channels + c, mask=inside, other=0.0)
    factor = tl.load(scale + group * channels + c, mask=inside, other=0.0)
    w = tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    products = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for tile in tl.range(tl.load(about + TILES), num_stages=STAGES):
        r = first + tile * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        if OTHER:
            g += tl.load(other + at, mask=mask, other=0.0).to(tl.float32)
        if RECOMPUTE:
            g = tl.where(centred * (factor * w)[None, :] + b[None, :] > 0, g, 0.0)
        if MASK:
            g = tl.where(tl.load(y + at, mask=mask, other=0.0) > 0, g, 0.0)
        if WRITE:
            tl.store(written + at, g.to(written.dtype.element_ty), mask=mask)
        total += g
        products += g * (centred * factor[None, :])
    place = partial + part * 2 * channels + c
    tl.store(place, tl.sum(total, axis=0), mask=inside)
    tl.store(place + channels, tl.sum(products, axis=0), mask=inside)


@triton.jit(do_not_specialize=["parts"])
def gradient_of_maps(
    x,
    gradient,
    of_x,
    partial,
    sums,
    mean,
    scale,
    weight,
    bias,
    parts,
    RECOMPUTE: tl.constexpr,
    part_table,
    group_table,
    channels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """∂x = weight·scale·(g − mean(g) − x̂·mean(g·x̂)), both means over the group.

    The first program of a column keeps the sums over all groups, the gradients of bias and weight.
    """
    part = tl.program_id(0)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    if part == 0:
        total, products = _add_up(partial, 0, parts, channels, c, inside, HEIGHT, WIDTH)
        tl.store(sums + c, total, mask=inside)
        tl.store(sums + channels + c, products, mask=inside)
    about = part_table + part * 4
    first, end, group = tl.load(about + FIRST_ROW), tl.load(about + END_ROW), tl.load(about + GROUP)
    of_group = group_table + group * 4
    first_part, end_part = tl.load(of_group + FIRST_PART), tl.load(of_group + END_PART)
    total, products = _add_up(partial, first_part, end_part, channels, c, inside, HEIGHT, WIDTH)
    rows = tl.load(of_group + ROWS)
    mean_g = total / rows
    mean_product = products / rows
    centre = tl.load(mean + group * channels + c, mask=inside, other=0.0)
    factor = tl.load(scale + group * channels + c, mask=inside, other=0.0)
    w = tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    for tile in tl.range(tl.load(about + TILES), num_stages=STAGES):
        r = first + tile * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        if RECOMPUTE:
            g = tl.where(centred * (factor * w)[None, :] + b[None, :] > 0, g, 0.0)
        value = g - mean_g[None, :] - centred * (factor * mean_product)[None, :]
        tl.store(of_x + at, (value * (w * factor)[None, :]).to(of_x.dtype.element_ty), mask=mask)
