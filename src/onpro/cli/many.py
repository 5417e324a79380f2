"""Carry out `onpro table` and `onpro sweep`: plan, train what is missing, print."""

import sys
from collections.abc import Sequence
from contextlib import closing

from onpro.cli.options import ComputeOptions, ExecutionOptions, ManyOptions
from onpro.cli.printing import print_table
from onpro.cli.training import (
    download,
    image_side,
    make_executor,
    place_of,
    say_failures,
    train_many,
)
from onpro.errors import UserError, counted
from onpro.experiments.comparison import compare
from onpro.experiments.estimate import Estimates
from onpro.experiments.executors import JobResult, requests
from onpro.experiments.experiment import IN_TABLES, STATES, Measure, Setup, named_measures
from onpro.experiments.plan import Place, Plan, plan
from onpro.reports.formats import render
from onpro.reports.plans import PLAN, duration, known_seconds, plan_records
from onpro.reports.tables import results, with_comparisons
from onpro.runs import RunConfig, require_writable
from onpro.runs.threads import THREADS, cpu_threads, unequal_threads
from onpro.text import visible


def carry_out(
    wanted: Sequence[Setup],
    options: ManyOptions,
    compute: ComputeOptions,
    execution: ExecutionOptions,
    *,
    what: str,
    measures: Sequence[Measure] = IN_TABLES,
) -> int:
    """Train what is missing or unfinished, print the table, and return the exit status."""
    execution.check()
    compute.kept_model()
    measures = named_measures(options.measures) or measures
    if options.calibrate and not options.dry_run:
        raise UserError("--calibrate is for --dry-run: add that, or leave it out.")
    if not options.dry_run:
        require_writable(options.out)
    side = max(image_side(one.data, dict(one.stream).get("image_size")) for one in wanted)
    with closing(
        make_executor(execution, compute.device, side, dry_run=options.dry_run)
    ) as executor:
        place = place_of(executor, compute, execution.on)
        planned = _possible(plan(wanted, options.out, place), what)
        if options.calibrate:
            planned = _possible(_with_data(planned, place), what)
        if options.dry_run:
            threads = execution.threads or THREADS
            _print_plan(planned, options, threads=threads, slots=executor.slots())
            return 0
        if execution.on == "local":
            planned = _possible(_with_data(planned, place), what)
        _say_problems(planned)
        print(_counts(planned), file=sys.stderr)
        failures = {
            planned.out / run.config.folder: JobResult("failed", run.problem)
            for run in planned.runs()
            if run.problem
        }
        if left := planned.left():
            failures |= train_many(requests(left, planned.out, **execution.how()), executor)
    done = plan(wanted, options.out, place)
    _print_results(done, options, measures)
    for experiment in done.experiments:
        if unequal := unequal_threads(run.result for run in experiment.runs):
            print(f"{experiment}: its runs computed {unequal}.", file=sys.stderr)
    return say_failures(failures)


def _possible(planned: Plan, what: str) -> Plan:
    """Raise UserError if a plan leaves everything out."""
    if not planned.runs():
        raise UserError(f"nothing of {what} can be run: {' '.join(planned.problems())}")
    return planned


def _with_data(planned: Plan, place: Place) -> Plan:
    """Load data sets before the runs all do; leave out what is not there."""
    wanted = {(config.data, config.limit_per_class) for config in planned.left()}
    for data, limit in sorted(wanted, key=str):
        try:
            download(data, place.data_dir, limit)
        except UserError as error:
            planned = planned.without(data, str(error))
    return planned


def _print_plan(planned: Plan, options: ManyOptions, *, threads: int, slots: int) -> None:
    """Print what is done, what is left and how long that takes; as text for each data set."""
    estimates = Estimates(planned.out)
    left = planned.left()
    if options.calibrate:
        with cpu_threads(threads):
            for run, problem in estimates.calibrate(left).items():
                print(f"not timed: {visible(f'{run}: {problem}')}", file=sys.stderr)
    if options.format == "text":
        _print_states(planned, estimates)
        print(_counts(planned))
        if left:
            hint = "" if options.calibrate else "--calibrate estimates"
            print(_time_left(left, estimates, slots, hint))
    else:
        print(render(plan_records(planned, estimates.seconds), PLAN, options.format))
    _say_problems(planned)


def _time_left(left: Sequence[RunConfig], estimates: Estimates, slots: int, hint: str) -> str:
    """Return a sentence on the time of runs, of those whose time is known."""
    known = known_seconds(left, estimates.seconds)
    if not known:
        return f"time left: unknown ({hint} it)" if hint else "time left: unknown"
    total = sum(known)
    of = f" for {len(known)} of {len(left)} runs" if len(known) < len(left) else ""
    at_once = f"about {duration(total / slots)} with {slots} at once"
    text = f"time left{of}: {duration(total)} one run after another, {at_once}"
    notes = []
    if estimates.hardware:
        notes.append(f"estimated from runs on {', '.join(sorted(estimates.hardware))}")
    if of and hint:
        notes.append(f"{hint} the others")
    return f"{text} ({'; '.join(notes)})" if notes else text


def _print_states(planned: Plan, estimates: Estimates) -> None:
    """Print the number of runs in each state and the time left, in a line for each data set."""
    runs, left = planned.runs(), planned.left()
    shown = [state for state in STATES if any(run.state == state for run in runs)]
    rows = []
    for data in dict.fromkeys(run.config.data for run in runs):
        states = [str(run.state) for run in runs if run.config.data == data]
        there = [config for config in left if config.data == data]
        known = known_seconds(there, estimates.seconds)
        unknown = len(there) - len(known)
        parts = [duration(sum(known))] if known else []
        parts += [f"{unknown} unknown" if known else "unknown"] if unknown else []
        time = " + ".join(parts)
        counts = [str(states.count(state)) for state in shown]
        rows.append([data, str(len(states)), *counts, time])
    print_table(["data", "runs", *shown, "time left"], rows)


def _counts(planned: Plan) -> str:
    states = [run.state for run in planned.runs()]
    counts = ", ".join(f"{states.count(s)} {s}" for s in STATES if s in states)
    return f"{counted(len(states), 'run')}: {counts}"


def _say_problems(planned: Plan) -> None:
    for problem in planned.problems():
        print(f"left out: {visible(problem)}", file=sys.stderr)


def _print_results(done: Plan, options: ManyOptions, measures: Sequence[Measure]) -> None:
    if not options.compare:
        print(results(done.experiments, options.format, measures=measures))
        return
    compared = compare(done.experiments, measures)
    print(with_comparisons(done.experiments, compared, options.format, measures=measures))
    if not compared:
        print(
            "nothing to compare: no two experiments have two finished runs each.", file=sys.stderr
        )
    elif options.format == "csv":
        print("not in csv: the comparison of methods; --format json has it.", file=sys.stderr)
