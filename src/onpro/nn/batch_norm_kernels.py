"""Triton kernels of `fused_batch_norm`.

Maps are matrices with one row per pixel and one column per channel. Program (i, j) computes part i
of the rows and tile j of the columns. The second kernel of a pass reads the tiles of a part in
reverse order, since those that the first read last are still in the cache.
"""

import triton
import triton.language as tl

# Columns of `part_table`: a part's first row, the end row of its group, its tiles, its group.
FIRST_ROW, END_ROW, TILES, GROUP = map(tl.constexpr, range(4))
# Columns of `group_table`: a group's first part, end part, number of rows, first row.
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
    """Sum x − x₀ and (x − x₀)² over the rows of a part, where x₀ is the first row of its group.

    The shift avoids cancellation if the mean is far from zero.
    """
    part = tl.program_id(0)
    entry = part_table + part * 4
    first, end = tl.load(entry + FIRST_ROW), tl.load(entry + END_ROW)
    start = tl.load(group_table + tl.load(entry + GROUP) * 4 + START)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    shift = tl.load(x + start.to(tl.int64) * channels + c, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    squares = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for tile in tl.range(tl.load(entry + TILES), num_stages=STAGES):
        r = first + tile * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - shift[None, :]
        value = tl.where(mask, value, 0.0)
        total += value
        squares += value * value
    target = partial + part * 2 * channels + c
    tl.store(target, tl.sum(total, axis=0), mask=inside)
    tl.store(target + channels, tl.sum(squares, axis=0), mask=inside)


@triton.jit
def _sum_parts(partial, first, end, channels, c, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Add up both sums of the columns c over a range of parts."""
    one = tl.zeros([HEIGHT, WIDTH], tl.float32)
    other = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for start in range(first, end, HEIGHT):
        p = start + tl.arange(0, HEIGHT)
        mask = (p < end)[:, None] & inside[None, :]
        source = partial + p[:, None] * 2 * channels + c[None, :]
        one += tl.load(source, mask=mask, other=0.0)
        other += tl.load(source + channels, mask=mask, other=0.0)
    return tl.sum(one, axis=0), tl.sum(other, axis=0)


@triton.jit
def _statistics(x, partial, entry, channels, c, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Return mean, variance and number of rows of a group."""
    rows = tl.load(entry + ROWS)
    first, end = tl.load(entry + FIRST_PART), tl.load(entry + END_PART)
    total, squares = _sum_parts(partial, first, end, channels, c, inside, HEIGHT, WIDTH)
    shifted = total / rows
    variance = tl.maximum(squares / rows - shifted * shifted, 0.0)
    first_row = x + tl.load(entry + START).to(tl.int64) * channels
    mean = tl.load(first_row + c, mask=inside, other=0.0).to(tl.float32) + shifted
    return mean, variance, rows


@triton.jit(do_not_specialize=["groups"])
def normalise(
    x,
    residual,
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
    RESIDUAL: tl.constexpr,
    ACTIVATE: tl.constexpr,
    part_table,
    group_table,
    channels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute y = relu((x − mean)·scale·weight + bias + residual), scale = 1/√(variance + ε).

    The first program of a column also stores mean and scale of all groups and updates the running
    statistics, group after group.
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
    entry = part_table + part * 4
    first, end = tl.load(entry + FIRST_ROW), tl.load(entry + END_ROW)
    centre, variance, rows = _statistics(
        x, partial, group_table + tl.load(entry + GROUP) * 4, channels, c, inside, HEIGHT, WIDTH
    )
    factor = tl.rsqrt(variance + eps) * tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    tiles = tl.load(entry + TILES)
    for done in tl.range(tiles, num_stages=STAGES):
        r = first + (tiles - 1 - done) * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        value = centred * factor[None, :] + b[None, :]
        if RESIDUAL:
            value += tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
        if ACTIVATE:
            value = tl.maximum(value, 0.0)
        tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def sum_gradients(
    x,
    gradient,
    other,
    y,
    stored_g,
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
    """Sum g and g·x̂ over the rows of a part, where g is the gradient by the input of the ReLU.

    The input of the ReLU is positive where the normalised x is (RECOMPUTE), or where y is (MASK).
    """
    part = tl.program_id(0)
    entry = part_table + part * 4
    first, end, group = tl.load(entry + FIRST_ROW), tl.load(entry + END_ROW), tl.load(entry + GROUP)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    centre = tl.load(mean + group * channels + c, mask=inside, other=0.0)
    factor = tl.load(scale + group * channels + c, mask=inside, other=0.0)
    w = tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    products = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for tile in tl.range(tl.load(entry + TILES), num_stages=STAGES):
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
            tl.store(stored_g + at, g.to(stored_g.dtype.element_ty), mask=mask)
        total += g
        products += g * (centred * factor[None, :])
    target = partial + part * 2 * channels + c
    tl.store(target, tl.sum(total, axis=0), mask=inside)
    tl.store(target + channels, tl.sum(products, axis=0), mask=inside)


@triton.jit(do_not_specialize=["parts"])
def input_gradient(
    x,
    gradient,
    grad_x,
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
    """Compute ∂x = weight·scale·(g − mean(g) − x̂·mean(g·x̂)), with means over the group.

    The first program of a column also stores the gradients of bias and weight, which are the sums
    over all groups.
    """
    part = tl.program_id(0)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    if part == 0:
        total, products = _sum_parts(partial, 0, parts, channels, c, inside, HEIGHT, WIDTH)
        tl.store(sums + c, total, mask=inside)
        tl.store(sums + channels + c, products, mask=inside)
    entry = part_table + part * 4
    first, end, group = tl.load(entry + FIRST_ROW), tl.load(entry + END_ROW), tl.load(entry + GROUP)
    of_group = group_table + group * 4
    first_part, end_part = tl.load(of_group + FIRST_PART), tl.load(of_group + END_PART)
    total, products = _sum_parts(partial, first_part, end_part, channels, c, inside, HEIGHT, WIDTH)
    rows = tl.load(of_group + ROWS)
    mean_g = total / rows
    mean_product = products / rows
    centre = tl.load(mean + group * channels + c, mask=inside, other=0.0)
    factor = tl.load(scale + group * channels + c, mask=inside, other=0.0)
    w = tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    tiles = tl.load(entry + TILES)
    for done in tl.range(tiles, num_stages=STAGES):
        r = first + (tiles - 1 - done) * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        if RECOMPUTE:
            g = tl.where(centred * (factor * w)[None, :] + b[None, :] > 0, g, 0.0)
        value = g - mean_g[None, :] - centred * (factor * mean_product)[None, :]
        tl.store(
            grad_x + at, (value * (w * factor)[None, :]).to(grad_x.dtype.element_ty), mask=mask
        )
