"""Cost: time, energy and money to train a published network, a network of one's own, or on as many samples as one asks for."""

from collections.abc import Iterator, Sequence

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered
from dlbench.analysis.answers.parts.convergence import SEE_PRECISION, trainings
from dlbench.analysis.answers.parts.cost_tables import inference_table, money_table, rent_or_buy_table, time_table
from dlbench.analysis.answers.parts.headline import Headline, Tag, fitting, nearer, qualifiers, which
from dlbench.analysis.answers.parts.money import Hour, Payment
from dlbench.analysis.answers.parts.open_costs import what_stays_open
from dlbench.analysis.answers.parts.training_time import (
    THOUSAND,
    Cost,
    Estimate,
    best_steps,
    dataset,
    estimates,
    faster_steps,
    inference,
    short_words,
    words,
)
from dlbench.analysis.presentation.names import hardware, noun, several_runs
from dlbench.analysis.presentation.wording import few, more_devices, plural, with_interval
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.prices import Prices
from dlbench.core.reference.schedules import schedules

ORDER = 90
QUESTION = Question("cost", "What does it cost: joules and money per 1000 samples, time to train?")
_LEFT_OUT = "reading and decoding images, validation, checkpoints and clocks that change over hours are left out"
_CONVERGES = "whether it converges at that batch and in that precision is open"
_OPEN = "joules and money stay open"
_HINT = "; --price-per-hour"
"""What would add money to the headline."""
_TOLD = 2
"""Trainings that sentences tell; the tables have all."""
_PAID = {Payment.RENTED: "Rented", Payment.BOUGHT: "Bought", Payment.POWERED: "In electricity"}


def answer(results: Results) -> Answer | Missing:
    """Return what training the networks takes on each device, at its best measured throughput, and at the prices that are given."""
    prices, of_model = results.prices, estimates(best_steps(results), results.prices)
    forward = inference(results)
    if not of_model and forward:
        return answered(QUESTION, _of_inference(forward, prices))
    if not of_model:
        names = dict.fromkeys(f"{row.case.workload} {row.params.get('model', '')}".rstrip() for row in results.rows if row.is_ok)
        none = f"{few(names, 3)}: no training step of a published network by one process"
        lacking = none if names else "no training step of a published network was measured"
        return Missing(QUESTION, f"{lacking}; {_OPEN}", "dlbench run cnn", others=("dlbench run",))
    published = [model for model in schedules() if model in of_model]
    others = [model for model in of_model if model not in schedules()]
    most = max(published, key=lambda model: len(_alone(of_model[model][0])), default="")
    timed = next((model for model in published if model != most and schedules()[model].took), None)
    told = [of_model[model][0] for model in (most, *others) if model] if others else of_model[most]
    told = [*told, *([of_model[timed][-1]] if timed else [])][:_TOLD]
    every = [each for model in (*published, *others) for found in of_model[model] for each in found]
    several = several_runs([*every, *forward])
    converges = SEE_PRECISION if trainings(results.rows) else _CONVERGES
    paragraphs = [tuple(_sentences(found, prices, several)) for found in told]
    paragraphs[-1] += tuple(_of_1000(forward, prices, several))
    return answered(
        QUESTION,
        AnswerPart(
            paragraphs,
            every,
            [*_tables(every, prices), inference_table(forward, prices)],
            weaknesses=[_LEFT_OUT, converges, *map(str, faster_steps(results)), *what_stays_open(every, prices)],
            headline=_headline(of_model[others[0] if others else most][0], prices),
        ),
    )


def _headline(found: Sequence[Estimate], prices: Prices) -> Headline:
    """Return the shortest time in which one device trains a network, the money or else the energy, and how many others of its kind do."""
    found = _alone(found)
    best = min(found, key=lambda each: each.seconds)
    time, model, chosen = units.seconds(best.seconds), best.schedule.model, best.choice.replace("batch=", "b")
    what = short_words(best.schedule)
    cost = best.cheapest
    spent = prices.money(cost.of(best.samples)) if cost else None if best.joules is None else units.energy(best.joules)
    paid = f", {spent}" if spent else ""
    texts = [f"{time}{best.span}{paid} for {what}, {model}", f"{time}{best.span}{paid} for {what}"]
    texts += [f"{time}{paid} for {what}, {model}", f"{time}{paid} for {what}", f"{time}{paid}"]
    text = fitting(*texts)
    if not text.endswith(model):
        chosen = f"{model} {chosen}"
    alike = [each for each in found if each.row.is_on_cpu is best.row.is_on_cpu]
    where = which(best.row, alike, len(alike) - 1)
    return Headline([text], _about(chosen, where, "" if prices.has_amounts else _HINT), best.span, [best], {Tag.STEPS_ALONE: True})


def _about(chosen: str, where: str, hint: str) -> list[str]:
    """Return texts for a qualifier: what was chosen and where it ran; the hint goes before details of these."""
    words = chosen.split(" ")
    shorter = (" ".join(words[:count]) + there + hint for there in (nearer(where), "") for count in range(len(words), 0, -1) if hint)
    return [chosen + where + hint, *shorter, chosen + where, *qualifiers([chosen], nearer(where))]


def _of_inference(found: Sequence[Estimate], prices: Prices) -> AnswerPart:
    """Return what inference takes, where no training was measured."""
    best = max(found, key=lambda each: each.row.paid_rate)
    cost = best.cheapest
    spent = prices.money(cost.of(THOUSAND)) if cost else units.energy(best.joules or 0.0)
    texts = [f"{spent} for 1000 samples of inference", f"{spent} for 1000 samples"]
    where = which(best.row, found, len({(each.row.case.run, each.row.case.device) for each in found}) - 1)
    chosen = f"{best.schedule.model} {best.choice.replace('batch=', 'b')}"
    hint = "" if prices.has_amounts else _HINT
    headline = Headline(texts, _about(chosen, where, hint), "", [best], {Tag.STEPS_ALONE: True})
    sentences = tuple(_of_1000(found, prices, several_runs(found)))
    weaknesses = ["no training step of a published network was measured: dlbench run cnn", *what_stays_open(found, prices)]
    return AnswerPart([sentences], found, [inference_table(found, prices)], weaknesses=weaknesses, headline=headline)


def _of_1000(found: Sequence[Estimate], prices: Prices, several: bool) -> Iterator[str]:
    """Yield the energy and the money of 1000 samples of inference on the device that is fastest."""
    if not found:
        return
    best = max(found, key=lambda each: each.row.paid_rate)
    thousand, low, high = best.joules_of_1000
    took = [] if thousand is None else [f"take {with_interval(thousand, low, high, units.energy)}"]
    amounts = ((_PAID[cost.way].lower(), prices.money(cost.of(THOUSAND)), _ends(cost, THOUSAND)) for cost in best.costs)
    took += [f"cost, {way}, {amount}{ends}" for way, amount, ends in amounts]
    counts = "sustained" if best.sustained else "fastest"
    yield f"Inference of {best.schedule.model} was {counts} on {hardware(best.row, several)} at {best.choice}."
    for each in took:
        yield f"1000 samples of it {each}."
    if len(found) > 1:
        yield f"{plural(len(found) - 1, 'more step')} of inference: in the table only."


def _alone(found: Sequence[Estimate]) -> Sequence[Estimate]:
    """Return those of one process; all where none is."""
    return [each for each in found if each.is_alone] or found


def _sentences(found: Sequence[Estimate], prices: Prices, several: bool) -> Iterator[str]:
    """Yield how long a network takes on the device that is fastest, on a CPU if that is another, and on several devices, and the cost.

    Last comes how long it took its authors.
    """
    alone, schedule = _alone(found), found[0].schedule
    first = min(alone, key=lambda each: each.seconds)
    last = next((each for each in alone if each.row.is_on_cpu), first)
    yield f"{schedule.model} trains {'on' if schedule.epochs == 1 else 'for'} {words(schedule)}, estimated from steps."
    for each in (first,) if last is first else (first, last):
        yield f"On {hardware(each.row, several)} that takes {each}."
        yield f"It was {'sustained' if each.sustained else 'fastest there'} at {each.choice}."
        yield from _spent(each, prices)
    more = [each for each in found if each.devices > 1 and each is not first]
    if more:
        together = min(more, key=lambda each: each.seconds)
        cost = together.cheapest
        paid = f", and {cost.way} {prices.money(cost.of(together.samples))}" if cost else ""
        yield f"On {plural(together.devices, noun(together.row))} ({hardware(together.row, several)}) it takes {together}{paid}."
    yield from _cheapest([cost for each in alone for cost in each.costs], prices, several)
    if devices := more_devices(len(alone) - (1 if last is first else 2)):
        yield f"{devices}."
    if schedule.took:
        yield f"Its authors took {schedule.took}."


def _cheapest(costs: Sequence[Cost], prices: Prices, several: bool) -> Iterator[str]:
    """Yield on which of several devices a training costs least; electricity alone is compared with nothing but that."""
    costs = [each for each in costs if each.way is not Payment.POWERED] or costs
    if len({id(each.estimate.row) for each in costs}) < 2:
        return
    best = min(costs, key=lambda each: each.of(each.estimate.samples))
    without = " without electricity" if best.way is Payment.BOUGHT and best.electricity is None and prices.per_kwh.figures else ""
    yield f"{hardware(best.row, several)} costs least, {_PAID[best.way].lower()}{without}: {prices.money(best.of(best.estimate.samples))}."


def _spent(each: Estimate, prices: Prices) -> Iterator[str]:
    """Yield the energy of an estimate and what it costs, as far as they are known."""
    if each.sustained:
        yield f"That is its steady rate: it kept {units.percent(each.sustained.kept)} of its burst."
        yield from each.sustained.warning()
    thousand, low, high = each.joules_of_1000
    if thousand is not None and each.joules is not None:
        yield f"1000 samples take {with_interval(thousand, low, high, units.energy)}, and all of it {units.energy(each.joules)}."
    for cost in each.costs:
        epoch = f", an epoch {prices.money(cost.of(each.schedule.images))}" if each.schedule.epochs > 1 else ""
        yield (
            f"{_PAID[cost.way]}, 1000 samples cost {prices.money(cost.of(THOUSAND))}{epoch} "
            f"and all of it {prices.money(cost.of(each.samples))}{_ends(cost, each.samples)}."
        )
    yield from _rent_or_buy(each.hour, prices)


def _ends(cost: Cost, samples: float) -> str:
    """Return the interval of what samples cost, behind that; an empty text where there is none."""
    low, high = cost.ends(samples)
    return f" ({units.money(low)}…{units.money(high)})" if low is not None and high is not None else ""


def _rent_or_buy(hour: Hour, prices: Prices) -> Iterator[str]:
    """Yield after how many hours of use a device has earned its price, and whether that is within its planned use."""
    if hour.price is None or hour.rent is None:
        return
    hours, share = hour.hours_to_earn, hour.share_to_earn
    if hours is None and hour.cheaper is None:
        yield f"Renting and owning cost the same, {prices.money(hour.rent)} an hour, as buying costs nothing."
        return
    if hours is None:
        electricity = prices.money(hour.electricity or 0.0)
        yield f"However long it is used, renting is cheaper: {prices.money(hour.rent)} an hour, and electricity alone costs {electricity}."
        return
    earned = f"Bought for {prices.money(hour.price)}, it saves that much rent in {_hours(hours)}"
    if share is None:
        yield f"{earned} of use."
    else:
        yield f"{earned}, {units.percent(share)} of its planned use, so {'buying' if share < 1 else 'renting'} is cheaper."


def _hours(hours: float) -> str:
    """Return hours in whole ones, or of few in three digits."""
    return f"{hours:,.0f} hours" if hours >= 100 or not hours else f"{units.three_digits(hours)} hours"


def _tables(every: Sequence[Estimate], prices: Prices) -> list[Table]:
    """Return the tables of times, one for each set of samples, and those of money."""
    times = [time_table(alike) for alike in grouped(every, lambda each: dataset(each.schedule)).values()]
    return [*times, money_table(every, prices), rent_or_buy_table(every, prices)]
