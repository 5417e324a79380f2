"""The framework's optimizers, without what ties them to its compiler.

Every call of a torch optimizer first imports the compiler, so that the compiler can step around
it. That import takes some four seconds of each process, and steps here are not compiled.
"""

from inspect import unwrap

import torch


class SGD(torch.optim.SGD):
    """torch's SGD."""

    add_param_group = unwrap(torch.optim.SGD.add_param_group)
    state_dict = unwrap(torch.optim.SGD.state_dict)
    load_state_dict = unwrap(torch.optim.SGD.load_state_dict)
    zero_grad = unwrap(torch.optim.SGD.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class Adam(torch.optim.Adam):
    """torch's Adam."""

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    zero_grad = unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
