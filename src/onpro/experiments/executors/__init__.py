"""Where runs happen: an executor starts them one by one, what goes on is the same for all."""

from onpro.experiments.executors.crews import Crews
from onpro.experiments.executors.execute import Event, Executor, Job, execute
from onpro.experiments.executors.local import Local, cores
from onpro.experiments.executors.worker import Outcome

__all__ = ["Crews", "Event", "Executor", "Job", "Local", "Outcome", "cores", "execute"]
