"""Places: a machine with its software. Several result files of one place count as one, and places are told apart by what differs."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dlbench.core.provenance import contradict, facts

Environments = Mapping[str, Mapping[str, Any]]
"""As in `Results`, by ``case.run``."""

_CARDS, _DATE = "identity.accelerators", "date"
_TELLING = {
    "identity.cpu.name": "{}",
    _CARDS: "{}",
    "identity.cpu.isa": "{}",
    "identity.cpu.physical_cores": "{}-core",
    "identity.cpu.memory_gib": "{} GiB",
    "stack.versions.torch": "torch {}",
    "stack.versions.cuda": "cuda {}",
    "stack.versions.hip": "hip {}",
    "stack.versions.python": "python {}",
    "stack.driver": "driver {}",
    _DATE: "{}",
}
"""What tells machines apart, then software and days, the most telling first, and how it is said."""


def place_names(environments: Environments) -> dict[str, str]:
    """Return for each ``case.run`` the name of its place: what tells that from the others, as little as does; at last the file.

    A file that fits two places is of neither, and the sides of an A/B stay apart.
    """
    known = {run: found for run, each in environments.items() if "side" not in each and (found := facts(each))}
    places: list[list[str]] = []
    for run in sorted(known, key=lambda run: knowledge(environments[run]), reverse=True):
        fits = [place for place in places if not any(contradict(known[run], known[other]) for other in place)]
        if len(fits) == 1:
            fits[0].append(run)
        else:
            places.append([run])
    names = _names({place[0]: _texts(environments[place[0]]) for place in places})
    return {run: run for run in environments} | {run: names[place[0]] for place in places for run in place}


def keyed(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an environment with the name of its place as ``machine_key``, where it says its machine and software."""
    return {**environment, "machine_key": name} if facts(environment) else environment


def labels(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each of several files what tells it from the others, machine, software or day; at last its number."""
    return list(_names({str(number): _texts(each) for number, each in enumerate(environments, 1)}).values())


def knowledge(environment: Mapping[str, Any]) -> tuple[int, str]:
    """Return what sorts environments by how much they know, then by how new they are."""
    return len(facts(environment)), began(environment)


def began(environment: Mapping[str, Any]) -> str:
    """Return when a run began, as ISO 8601 in UTC; empty where its file does not say."""
    provenance = environment.get("provenance")
    return str(provenance.get("utc") or "") if isinstance(provenance, Mapping) else ""


def _texts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of a place as words, the most telling first."""
    known = {**facts(environment), _DATE: began(environment)[:10]}
    cards = Counter(str(value) for path, value in known.items() if re.fullmatch(r"identity\.accelerators\[\d+\]\.name", path))
    known[_CARDS] = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in cards.items())
    return {path: words.format(known[path]) for path, words in _TELLING.items() if known.get(path)}


def _names(texts_of: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return for each place the words that tell it from the others, and of one alone the most telling; at last the place itself."""
    known = {path: {texts[path] for texts in texts_of.values() if path in texts} for path in _TELLING}
    chosen, apart = [path for path in _TELLING if known[path]][: len(texts_of) == 1], 1
    for path in _TELLING:
        kinds = {tuple(texts.get(each) for each in (*chosen, path)) for texts in texts_of.values()}
        if len(known[path]) > 1 and len(kinds) > apart:
            chosen, apart = [*chosen, path], len(kinds)
    names = {place: ", ".join(texts[path] for path in chosen if path in texts) for place, texts in texts_of.items()}
    taken = Counter(names.values())
    return {place: name if name and taken[name] == 1 else ", ".join(filter(None, (name, place))) for place, name in names.items()}
