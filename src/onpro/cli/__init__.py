"""The command `onpro`: one module a subcommand, imported when it is asked for."""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module

from onpro._version import __version__
from onpro.cli.signals import importing
from onpro.cli.standard_streams import Lossy, open_closed_streams
from onpro.errors import UserError, unknown
from onpro.text import visible

COMMANDS = {
    "run": "train a method on a stream, print and save the result",
    "resume": "resume interrupted runs from their last checkpoints",
    "table": "reproduce a table of the paper and compare",
    "sweep": "run a grid of your own and compare its methods",
    "methods": "list the methods and what they store",
    "recipes": "list the recipes of all methods or of one",
    "streams": "list the kinds of streams and their settings",
    "datasets": "list the data sets and how to name your own",
    "predict": "classify image files with the model of a run",
    "report": "print tables of finished runs beside the paper's values",
    "figure": "draw a figure from finished runs",
    "pack": "store finished runs in one file",
    "bench": "measure how fast steps are and where their time goes",
}

TRAINING = (["run"], ["resume"], ["table"], ["sweep"])

USAGE = f"""usage: onpro COMMAND [OPTIONS]

Online class-incremental learning: a model sees a stream of images once, in
small batches, while new classes keep arriving, and only a few past images may
be stored.

commands:
{chr(10).join(f"  {name:<10} {about}" for name, about in COMMANDS.items())}

options:
  -h, --help            show this text; after a command, its options
  --version             show the version
  --completion SHELL    print a script for completion in bash, zsh or fish

examples:
  onpro run                              OnPro on handwritten digits
  onpro run er --memory 200 --seeds 3    another method, three runs
  onpro run onpro --data cifar10 --memory 500
  onpro resume runs/*                    resume interrupted runs
  onpro table table1 --data cifar10 --methods onpro,er --seeds 5"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 2 for a mistake of the user, 130 for Ctrl-C.

    An interruption by another signal has the status 128 plus its number; a reader that closes its
    pipe interrupts only what trains. Other output that cannot be written interrupts nothing; what
    was to go to standard output makes the status 1.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # For the record of a run; no variable can hold a null byte.
    os.environ["ONPRO_COMMAND"] = shlex.join(["onpro", *arguments]).replace("\0", "\\0")
    # Torch's threads wait for each other asleep: spinning, a busy machine slows them tenfold.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A GPU's memory in segments that grow: OnPro reserves a quarter less of it.
    if sys.platform == "linux" and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    open_closed_streams()
    out, err = Lossy(sys.stdout), Lossy(sys.stderr)
    with redirect_stdout(out.as_text()), redirect_stderr(err.as_text()):
        try:
            status = _answer(arguments)
            out.flush()
        except BrokenPipeError:  # whoever read our output has gone: nothing is left to say
            out.discard()
            err.discard()
            return 128 + getattr(signal, "SIGPIPE", 13) if arguments[:1] in TRAINING else 0
        if out.loss:
            print(f"onpro: standard output could not be written: {out.loss}.", file=sys.stderr)
        return status or (1 if out.loss else 0)


def _answer(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except SystemExit as leaving:
        if leaving.code:
            raise
        return 0  # after --help
    except UserError as error:
        print(f"onpro: {visible(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:  # a pipe, or the network
            raise
        path, reason = visible(os.fsdecode(error.filename)), error.strerror or str(error)
        print(f"onpro: {path} cannot be used: {reason.lower()}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupted:  # a run says what is kept of it
        print(f"\nonpro: {visible(str(interrupted)) or 'interrupted.'}", file=sys.stderr)
        return 128 + int(getattr(interrupted, "signal", signal.SIGINT))


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(USAGE)
        return 0
    if name == "--version":
        print(f"onpro {__version__}")
        return 0
    if name in ("--completion", "--complete"):
        from onpro.cli.completion import candidates, script

        shell = arguments[1] if len(arguments) > 1 else ""
        asked = name == "--complete"
        print("\n".join(candidates(arguments[1:], COMMANDS)) if asked else script(shell))
        return 0
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    with importing():
        module = import_module(f"onpro.cli.{name}")
    status: int = module.main(arguments[1:])
    return status
