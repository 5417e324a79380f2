"""How one learns: one file a method, its settings on top, its class below."""

from onpro.methods import (
    agem,
    aser,
    cope,
    derpp,
    dvc,
    er,
    gdumb,
    gss,
    icarl,
    mir,
    ocm,
    onpro,
    pass_,
    scr,
)
from onpro.methods.base import About, Context, Method
from onpro.methods.registry import method, methods, register
from onpro.methods.settings import Settings, require

__all__ = [
    "About",
    "Context",
    "Method",
    "Settings",
    "agem",
    "aser",
    "cope",
    "derpp",
    "dvc",
    "er",
    "gdumb",
    "gss",
    "icarl",
    "method",
    "methods",
    "mir",
    "ocm",
    "onpro",
    "pass_",
    "register",
    "require",
    "scr",
]
