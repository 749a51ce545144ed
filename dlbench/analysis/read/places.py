"""Places: a machine with its software. Several result files of one place count as one, and places are told apart by what differs."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from dlbench.analysis.read.ceilings import with_ceilings
from dlbench.core.model import Status
from dlbench.core.provenance import contradict, facts
from dlbench.core.rows.summary import Rounds, Row

if TYPE_CHECKING:
    from dlbench.analysis.read.table import Results

Environments = Mapping[str, Mapping[str, Any]]
"""As in `Results`, by ``case.run``."""

_UNMEASURED = (Status.SKIPPED, Status.UNSUPPORTED)
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


def merged(results: "Results") -> "Results":
    """Return results in which the files of one place are one: ``case.run`` is the name of the place, and ``case.file`` the file.

    Of a case in several files the sound row of most rounds counts, and of those the newest. The sides of an A/B, and files that do not
    say their machine and software, stay apart. Ceilings are those of the place.
    """
    if results.unmerged is not None or len(results.environments) < 2:
        return results
    names = place_names(results.environments)
    chosen = _chosen(results, names)
    rows = [_placed(results.rows[at], names) for at in chosen]
    environments: dict[str, Mapping[str, Any]] = {}
    for name in dict.fromkeys(names.values()):
        richest = max((results.environments[file] for file, of in names.items() if of == name), key=_known)
        environments[name] = _keyed(richest, name)
    without: Row = {"rate.ceiling_fraction": None, "rate.ceiling": None}
    return replace(
        results,
        rows=tuple(with_ceilings([{**row, **without} for row in rows], results.declaration, environments)),
        rounds=tuple(results.rounds[at] for at in chosen),
        tries=tuple(_placed(row, names) for row in results.tries),
        environments=environments,
        unmerged=results,
    )


def by_place(environments: Environments) -> dict[str, Mapping[str, Any]]:
    """Return the environments with the name of the place as ``machine_key``, where they say their machine and software."""
    names = place_names(environments)
    return {run: _keyed(environment, names[run]) for run, environment in environments.items()}


def _keyed(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {**environment, "machine_key": name} if facts(environment) else environment


def file_of(row: Row, prefix: str = "case") -> str:
    """Return the result file that a row, or the side ``prefix`` of a pair, stands in, and of an A/B the side."""
    return str(row.get(f"{prefix}.file") or row[f"{prefix}.run"])


def with_files(rows: Iterable[Row], *prefixes: str) -> list[Row]:
    """Return rows for programs, with the file as ``run`` of each prefix and not its place."""
    return [{**row, **{f"{prefix}.run": file_of(row, prefix) for prefix in prefixes}} for row in rows]


def place_names(environments: Environments) -> dict[str, str]:
    """Return for each ``case.run`` the name of its place: what tells that from the others, as little as does; at last the file."""
    places = _places(environments)
    told = {files[0]: _texts(environments[files[0]]) for files in places if facts(environments[files[0]])}
    names = {place: ", ".join(texts) or place for place, texts in _telling(told).items()}
    if len(told) == 1:
        names = {place: _usual(texts) or place for place, texts in told.items()}
    repeated = Counter([*names.values(), *(files[0] for files in places if files[0] not in told)])
    unique = {place: name if repeated[name] == 1 else f"{name}, {place}" for place, name in names.items()}
    return {file: unique.get(files[0], files[0]) for files in places for file in files}


def _places(environments: Environments) -> list[list[str]]:
    """Return the files of each place, the one that knows most of it first; a file that fits two places is of neither."""
    alike: dict[str, list[str]] = {}
    apart: list[list[str]] = []
    for run, environment in environments.items():
        known = facts(environment)
        if known and "side" not in environment:
            alike.setdefault(repr(known), []).append(run)
        else:
            apart.append([run])
    found: list[tuple[list[str], list[Mapping[str, Any]]]] = []
    for runs in sorted(alike.values(), key=lambda runs: _known(environments[runs[0]]), reverse=True):
        known = facts(environments[runs[0]])
        fits = [place for place in found if not any(contradict(known, of_others) for of_others in place[1])]
        if len(fits) == 1:
            fits[0][0].extend(runs)
            fits[0][1].append(known)
        else:
            found.append((runs, [known]))
    return [files for files, _ in found] + apart


def _known(environment: Mapping[str, Any]) -> tuple[int, str]:
    """Return what sorts environments by how much they know, then by how new they are."""
    return len(facts(environment)), _began(environment)


def _began(environment: Mapping[str, Any]) -> str:
    provenance = environment.get("provenance")
    return str(provenance.get("utc") or "") if isinstance(provenance, Mapping) else ""


def _texts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of a place as words, by its path, the most telling first."""
    known = facts(environment)
    texts = {path: _TEXTS.get(path, "{name} {}").format(value, name=path.rpartition(".")[2]) for path, value in known.items()}
    cards = Counter(str(value) for path, value in known.items() if re.fullmatch(r"identity\.accelerators\[\d+\]\.name", path))
    if cards:
        texts[_ACCELERATORS] = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in cards.items())
    if began := _began(environment):
        texts[_DATE] = began[:10]
    order = chain(_OF_MACHINE, (p for p in known if p.startswith("identity")), _OF_STACK, (p for p in known if p.startswith("stack")))
    # A file may hold half of a surrogate pair, which has no encoding.
    return {path: texts[path].encode(errors="replace").decode() for path in dict.fromkeys((*order, _DATE)) if path in texts}


def _usual(texts: Mapping[str, str]) -> str | None:
    """Return the name of the only place that says what it is: the most telling text of its machine; None where it has none."""
    return next((texts[path] for path in _OF_MACHINE if path in texts), None)


def _telling(told: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return for each place the words that tell it from the others: of each path that parts some of them."""
    found: dict[str, list[str]] = {place: [] for place in told}
    groups = [list(told)]
    paths = [path for prefix in ("identity", "stack", _DATE) for texts in told.values() for path in texts if path.startswith(prefix)]
    for path in dict.fromkeys(paths):
        parted: list[list[str]] = []
        for group in groups:
            texts = {place: told[place].get(path) for place in group}
            known = {text: text.split(", ") for text in texts.values() if text is not None}
            if len(known) < 2:
                parted.append(group)
                continue
            common = set.intersection(*map(set, known.values()))
            by_text: dict[str | None, list[str]] = {}
            for place, text in texts.items():
                by_text.setdefault(text, []).append(place)
                if text is not None:
                    found[place].append(", ".join(word for word in known[text] if word not in common) or text)
            parted += by_text.values()
        groups = parted
    for place in chain.from_iterable(group for group in groups if len(group) > 1):
        found[place].append(place)
    return found


def _chosen(results: "Results", names: Mapping[str, str]) -> Sequence[int]:
    """Return which row of each case counts, in the order in which the cases came first."""
    cases: dict[tuple[str, Any], list[int]] = {}
    for at, row in enumerate(results.rows):
        cases.setdefault((names[str(row["case.run"])], row["case.id"]), []).append(at)

    def worth(at: int) -> tuple[bool, bool, bool, int, str]:
        row, rounds = results.rows[at], results.rounds[at]
        ok = row["case.status"] == Status.OK and not row["flag.implausible"]
        measured = row["case.status"] not in _UNMEASURED or bool(row["case.found"])
        return measured, ok, ok and _is_sound(rounds), int(row["time.rounds"] or 0), _began(results.environments[str(row["case.run"])])

    return [max(found, key=worth) for found in cases.values()]


def _is_sound(rounds: Rounds) -> bool:
    """Whether at most half of the rounds were throttled, disturbed or unsteady."""
    return 2 * sum(rounds.spoiled) <= len(rounds.spoiled)


def _placed(row: Row, names: Mapping[str, str]) -> Row:
    file = str(row["case.run"])
    return {**row, "case.run": names[file], "case.file": file}
