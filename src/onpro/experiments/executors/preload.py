"""What the fork server imports, deaf to Ctrl-C; then it hears it again, for processes of others."""

import signal

import onpro.experiments.executors.local  # noqa: F401 # for the processes that it forks

signal.signal(signal.SIGINT, signal.SIG_IGN)  # forget a Ctrl-C that came meanwhile
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
signal.signal(signal.SIGINT, signal.default_int_handler)
