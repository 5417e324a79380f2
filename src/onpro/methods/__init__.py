"""How one learns: one file a method, its settings on top, its class below."""

from onpro.methods import (  # noqa: F401 # registers them
    agem,
    aser,
    ccldc,
    cope,
    derpp,
    dvc,
    er,
    erace,
    gdumb,
    gsa,
    gss,
    gwm,
    hpcr,
    icarl,
    kd,
    mir,
    mkd,
    mose,
    ocm,
    onpro,
    pass_,
    pcr,
    rot,
    scr,
)
from onpro.methods.base import About, Context, Labelled, Method, Terms
from onpro.methods.registry import (
    AnyMethod,
    data_values,
    method,
    methods,
    recipes,
    register,
    register_wrapper,
    settings_for,
    wrappers,
)
from onpro.methods.settings import OptimizerSettings, ReplaySettings, Settings, require
from onpro.methods.wrapper import Wrapper

__all__ = [
    "About",
    "AnyMethod",
    "Context",
    "Labelled",
    "Method",
    "OptimizerSettings",
    "ReplaySettings",
    "Settings",
    "Terms",
    "Wrapper",
    "data_values",
    "method",
    "methods",
    "recipes",
    "register",
    "register_wrapper",
    "require",
    "settings_for",
    "wrappers",
]
