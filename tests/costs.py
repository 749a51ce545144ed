"""Made-up files of which the answer on cost is asked: steps at a rate, sustained ones, and the power that they take."""

from dataclasses import replace

import made_up

from dlbench.core.measurement import MeteredWindow

IMAGES = 1_281_167
IMAGENET = {"values": [], "parallel": {}, "tags": ["training", "imagenet"]}
OWN = "--samples 36000 --epochs 10"  # at 100 samples/s an epoch takes 6 minutes, all of them an hour, and 1000 samples 1/360 of it


SUSTAINED = {
    "tags": ["training", "imagenet"],
    "parallel": {},
    "values": [
        *({"name": name, "unit": "items/s", "meaning": name, "role": name} for name in ("burst", "steady")),
        {"name": "onset", "unit": "s", "meaning": "onset", "optional": True},
    ],
}


def steps(samples_per_s, device="cuda:0", workload="train_step", seconds=made_up.SEVEN, **params):
    """Seven rounds of steps of 64 samples at such a rate."""
    a_case = made_up.case(workload, device, **{"model": "resnet50", "batch": 64, "dtype": "bf16", **params})
    return made_up.rounds_of(a_case, made_up.flat([64 / samples_per_s * each for each in seconds]), items=64, flops=None)


def window(measurement, watts):
    """A minute on a device that takes so many watts: the samples of its blocks in it."""
    rate = measurement.items / measurement.samples.block_s[0]
    return MeteredWindow(60.0, 60 * rate, "nvml_counter", 60.0 * watts, 0.5 * watts)


def sustained(steady, burst, workload="mine", watts=None, **params):
    """Seven rounds of an experiment that began at one rate and ended at another, metered where it took so many watts."""
    of_steps = steps(steady, workload=workload, **params)
    found = [made_up.without_rounds(replace(each, energy=window(each, watts) if watts else None)) for each in of_steps]
    return [made_up.with_values(each, burst=burst * turn, steady=steady * turn) for each, turn in zip(found, made_up.SEVEN, strict=True)]


def weaknesses(answer, *words):
    return [each for each in answer["weaknesses"] if any(word in each for word in words)]
