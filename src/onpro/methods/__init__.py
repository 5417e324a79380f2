"""How one learns: one file a method, its settings on top, its class below."""

from onpro.methods import er, onpro
from onpro.methods.base import About, Context, Method
from onpro.methods.registry import method, methods, register
from onpro.methods.settings import Settings, require

__all__ = [
    "About",
    "Context",
    "Method",
    "Settings",
    "er",
    "method",
    "methods",
    "onpro",
    "register",
    "require",
]
