"""Places: a machine with its software. Several result files of one place count as one, and places are told apart by what differs."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from dlbench.core.provenance import contradict, facts

Environments = Mapping[str, Mapping[str, Any]]
"""As in `Results`, by ``case.run``."""

_ACCELERATORS, _DATE = "identity.accelerators", "date"
_OF_MACHINE = ("identity.cpu.name", _ACCELERATORS, "identity.cpu.isa", "identity.cpu.physical_cores", "identity.cpu.memory_gib")
_OF_STACK = ("stack.versions.torch", "stack.versions.cuda", "stack.versions.hip", "stack.versions.python", "stack.driver")
"""What tells machines apart, and software, the most telling first; all else that is recorded of either comes behind."""
_TEXTS = {
    "identity.cpu.name": "{}",
    "identity.cpu.isa": "{}",
    "identity.cpu.physical_cores": "{}-core",
    "identity.cpu.memory_gib": "{} GiB",
}


def by_place(environments: Environments) -> dict[str, Mapping[str, Any]]:
    """Return the environments with the name of the place as ``machine_key``, where they say their machine and software."""
    names = place_names(environments)
    return {run: _keyed(environment, names[run]) for run, environment in environments.items()}


def richest(environments: Environments, names: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """Return of each place, by its name, the environment that knows most of it, and of those the newest."""
    files: dict[str, list[str]] = {}
    for file, name in names.items():
        files.setdefault(name, []).append(file)
    return {name: _keyed(max((environments[file] for file in of), key=_known), name) for name, of in files.items()}


def _keyed(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {**environment, "machine_key": name} if facts(environment) else environment


def place_names(environments: Environments) -> dict[str, str]:
    """Return for each ``case.run`` the name of its place: what tells that from the others, as little as does; at last the file."""
    places = _places(environments)
    texts_of = {files[0]: _texts(environments[files[0]]) for files in places if facts(environments[files[0]])}
    names = {place: ", ".join(texts) or place for place, texts in _telling(texts_of).items()}
    if len(texts_of) == 1:
        # The most telling text of its machine is enough where no other place says what it is.
        names = {place: next((texts[path] for path in _OF_MACHINE if path in texts), place) for place, texts in texts_of.items()}
    repeated = Counter([*names.values(), *(files[0] for files in places if files[0] not in texts_of)])
    unique = {place: name if repeated[name] == 1 else f"{name}, {place}" for place, name in names.items()}
    return {file: unique.get(files[0], files[0]) for files in places for file in files}


def labels(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each of several files what tells it from the others, machine, software or day; at last its number."""
    telling = (*_OF_MACHINE, *_OF_STACK, _DATE)
    texts = [{path: text for path, text in _texts(each).items() if path in telling} for each in environments]
    texts_of = {str(number): each for number, each in enumerate(texts, 1)}
    return [", ".join(texts) or number for number, texts in _telling(texts_of).items()]


def _places(environments: Environments) -> list[list[str]]:
    """Return the files of each place, the one that knows most of it first; a file that fits two places is of neither."""
    known = {run: facts(environment) for run, environment in environments.items()}
    alike: dict[str, list[str]] = {}
    apart: list[list[str]] = []
    for run, environment in environments.items():
        if known[run] and "side" not in environment:
            alike.setdefault(repr(known[run]), []).append(run)
        else:
            apart.append([run])
    found: list[list[str]] = []
    for runs in sorted(alike.values(), key=lambda runs: _known(environments[runs[0]]), reverse=True):
        fits = [place for place in found if not any(contradict(known[runs[0]], known[other]) for other in place)]
        if len(fits) == 1:
            fits[0].extend(runs)
        else:
            found.append(runs)
    return found + apart


def _known(environment: Mapping[str, Any]) -> tuple[int, str]:
    """Return what sorts environments by how much they know, then by how new they are."""
    return len(facts(environment)), began(environment)


def began(environment: Mapping[str, Any]) -> str:
    """Return when a run began, as ISO 8601 in UTC; empty where its file does not say."""
    provenance = environment.get("provenance")
    return str(provenance.get("utc") or "") if isinstance(provenance, Mapping) else ""


def _texts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of a place as words, by its path, the most telling first."""
    known = facts(environment)
    texts = {path: _TEXTS.get(path, "{name} {}").format(value, name=path.rpartition(".")[2]) for path, value in known.items()}
    cards = Counter(str(value) for path, value in known.items() if re.fullmatch(r"identity\.accelerators\[\d+\]\.name", path))
    if cards:
        texts[_ACCELERATORS] = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in cards.items())
    if utc := began(environment):
        texts[_DATE] = utc[:10]
    order = chain(_OF_MACHINE, (p for p in known if p.startswith("identity")), _OF_STACK, (p for p in known if p.startswith("stack")))
    return {path: texts[path] for path in dict.fromkeys((*order, _DATE)) if path in texts}


def _telling(texts_of: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return for each place the words that tell it from the others: of each path that parts some of them."""
    found: dict[str, list[str]] = {place: [] for place in texts_of}
    groups = [list(texts_of)]
    paths = [path for prefix in ("identity", "stack", _DATE) for texts in texts_of.values() for path in texts if path.startswith(prefix)]
    for path in dict.fromkeys(paths):
        parted: list[list[str]] = []
        for group in groups:
            by_text: dict[str, list[str]] = {}
            for place in group:
                by_text.setdefault(texts_of[place].get(path, ""), []).append(place)
            known = {text: text.split(", ") for text in by_text if text}
            if len(known) < 2:
                parted.append(group)
                continue
            common = set.intersection(*map(set, known.values()))
            for text, words in known.items():
                telling = ", ".join(word for word in words if word not in common) or text
                for place in by_text[text]:
                    found[place].append(telling)
            parted += by_text.values()
        groups = parted
    for place in chain.from_iterable(group for group in groups if len(group) > 1):
        found[place].append(place)
    return found
