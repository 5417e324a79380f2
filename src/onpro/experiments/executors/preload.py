"""Imported by the fork server with Ctrl-C blocked, so that it does not end it.

Ctrl-C is unblocked afterwards: the server also forks the processes of other packages.
"""

import signal

import onpro.experiments.executors.local  # noqa: F401 # for the processes that it forks

signal.signal(signal.SIGINT, signal.SIG_IGN)  # forget a Ctrl-C that came meanwhile
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
signal.signal(signal.SIGINT, signal.default_int_handler)
