"""Health of a machine: against its published peak, against others like it, and by what was in the way."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered, table
from dlbench.analysis.answers.parts.elsewhere import Elsewhere, against_references
from dlbench.analysis.answers.parts.headline import Headline, Tag
from dlbench.analysis.answers.parts.published import beside_published
from dlbench.analysis.answers.parts.sustained import burst_figure, burst_table, sustained_steps
from dlbench.analysis.compare.outliers import Outlier, kinds, sentences
from dlbench.analysis.presentation.fields import KEY, Field, Fields, device_column, of_row, own, place, whole_row
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import brief, few, plural, short
from dlbench.analysis.ratios.ratio import middle
from dlbench.analysis.read.table import Results
from dlbench.analysis.read.usability import is_noisy, is_set_aside, mostly_disturbed
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.units import percent, ratio

ORDER = 100
QUESTION = Question("health", "Is this machine healthy: against its peak, against the same hardware elsewhere, against itself?")
_SIGNS: Mapping[str, Callable[[Row], bool | None]] = {
    "not usable": lambda row: row.flag.not_usable and mostly_disturbed(row),
    "failed": lambda row: not row.is_ok,
    "implausible": lambda row: row.flag.implausible,
    "throttled": lambda row: row.flag.throttled,
    "disturbed": lambda row: row.flag.disturbed,
    "not steady": lambda row: row.flag.not_steady,
    "unexpected": lambda row: row.flag.unexpected,
    "noisy": is_noisy,
}
"""Signs of trouble by the words behind a number of cases, the gravest first; the first is of all cases of a run."""
_BURSTS = 2
"""Steps of which a sentence says how far their burst was too good; the table has all."""
_GRAVE = ("failed", "implausible", "throttled")
_MINOR = ("disturbed", "not steady", "noisy")
"""Signs that the numbers of a run survive where at most half of its cases show them."""


class Trouble(NamedTuple):
    """A sign of trouble, and the cases that show it, of all or of a device."""

    sign: str
    rows: Sequence[Row]
    """Those that show it."""
    measured: int
    """Cases there."""
    place: str = ""


_TROUBLE: Fields[Trouble] = (
    device_column(),
    own("sign", "sign", Unit.TEXT, "what was the matter"),
    own("cases", "cases", Unit.COUNT, "cases with it", lambda trouble: len(trouble.rows), "lower"),
    own("measured", "measured", Unit.COUNT, "cases that were measured"),
    ("such as", Field(KEY.column, lambda trouble: trouble.rows[0].key if trouble.rows else None)),
)


_STRANGERS: Fields[Outlier] = (
    own("file", "outlier.file", Unit.TEXT, "the file", lambda outlier: outlier.row.case.run),
    ("case", Field(KEY.column, lambda outlier: outlier.row.case.id)),
    own(
        "time", "outlier.times", Unit.RATIO, "its time over the median of its kind of machine", lambda outlier: 1 + outlier.change, "lower"
    ),
)


def answer(results: Results) -> Answer | Missing:
    """Return how many cases show a sign of trouble, the share of its published peak that each device reaches, and how others do."""
    tried = [row for row in (*results.rows, *results.set_aside) if row.is_ok or row.is_failure]
    if not tried:
        return Missing(QUESTION, "no case was measured", "dlbench run")
    devices = by_device(tried)
    trouble, by_place = _trouble(tried), [each for where, found in devices.items() for each in _trouble(found, where)]
    peaks = {
        where: max(known, key=lambda row: row.rate.peak_fraction or 0.0)
        for where, found in devices.items()
        if (known := [row for row in found if not (is_set_aside(row) or row.flag.implausible or row.rate.peak_fraction is None)])
    }
    several = len(results.files.environments) > 1
    elsewhere, of_references = against_references(results, by_device(results.rows)) if results.references else ({}, AnswerPart())
    machines = kinds(results.files) if several else []
    outliers = [each for kind in machines for each in kind.outliers]
    others = sentences(machines)
    weaknesses = [*results.circumstances, *others[1:]]
    weaknesses += [] if peaks else ["no published peak of these devices is known for what was measured"]
    weaknesses += of_references.weaknesses
    weaknesses += [] if several else ["one file says nothing of other days: dlbench compare"]
    of_peaks = (
        place(tried),
        ("reached by", KEY),
        ("peak", of_row(lambda row: row.rate.peak_fraction)),
        ("of", of_row(lambda row: row.rate.peak)),
    )
    bursts = sustained_steps(results.rows)
    tables = [
        table("Signs of trouble", _TROUBLE[1:], trouble or [Trouble("none", (), len(tried))]),
        table("Signs of trouble by device", _TROUBLE, by_place if len(devices) > 1 else ()),
        table("Files that stand out among their kind", _STRANGERS, outliers),
        table("Shares of published peaks", of_peaks, list(peaks.values()), whole=whole_row),
        *([burst_table(bursts)] if bursts else []),
        *of_references.tables,
        *beside_published(results),
    ]
    counts, measured = ", ".join(f"{len(each.rows)} {each.sign}" for each in trouble), plural(len(tried), "case")
    summary = f"Signs of trouble among {measured}: {counts}." if trouble else f"No sign of trouble in {measured}."
    of_devices = ((*_of_peak(where, peaks.get(where)), *(elsewhere[where].sentences() if where in elsewhere else ())) for where in devices)
    of_bursts = tuple(sentence for each in bursts[:_BURSTS] for sentence in each.sentences(several))
    paragraphs = [(summary, *(f"{line}." for line in others[:1])), *filter(None, (of_bursts, *of_devices))]
    others_like_it = list(elsewhere.values())
    headline = _headline(tried, trouble, others_like_it, outliers, _of_machine(peaks, others_like_it))
    headline = replace(headline, tags={Tag.UNFINISHED: True}) if results.files.missing else headline
    figures = [burst_figure(bursts)] if bursts else []
    return answered(QUESTION, AnswerPart(paragraphs, tried, tables, figures, weaknesses, headline), flags_told=True)


def _of_peak(where: str, row: Row | None) -> tuple[str, ...]:
    """Say what share of its published peak a device reaches, and what that peak is."""
    if row is None:
        return ()
    share = percent(row.rate.peak_fraction or 0.0)
    return f"{where} reaches {share} of its published peak in {short(row.key)}.", f"That peak is {row.rate.peak}."


def _headline(
    tried: Sequence[Row],
    trouble: Sequence[Trouble],
    elsewhere: Sequence[Elsewhere],
    outliers: Sequence[Outlier],
    of_machine: Sequence[str],
) -> Headline:
    """Return the gravest trouble with how many cases show it, and its worst case where there is one; health tells flags by itself.

    ``of_machine`` qualifies what has no case of its own.
    """
    measured, showing = plural(len(tried), "case"), {each.sign: each.rows for each in trouble}
    counts = Counter({sign: len(rows) for sign, rows in showing.items()})
    if unusable := showing.get("not usable"):
        if all(row.flag.not_usable for row in tried):
            most = max(("disturbed", "throttled"), key=counts.__getitem__)
            return Headline([f"not usable: {len(unusable)} of {len(tried)} {most}"], of_machine)
        return Headline([f"not usable: {len(unusable)} of {measured}"], [few(dict.fromkeys(row.file for row in unusable), 1)])
    if grave := next(filter(showing.get, _GRAVE), None):
        worst = showing[grave][0]
        name = f"{brief(worst.key)}: {worst.case.reason}" if worst.is_failure and worst.case.reason else brief(worst.key)
        return Headline([f"{counts[grave]} of {measured} {grave}"], [name])
    off = sorted((each for found in elsewhere for each in found.off), key=lambda each: each.ratio.speedup)
    if off and off[0].ratio.speedup < 1:
        return Headline([f"{off[0].ratio.brief} as fast as this hardware elsewhere"], [brief(off[0].row.key)])
    if slow := next((each for each in outliers if each.change > 0), None):
        text = f"{ratio(1 + slow.change).replace(' ', '')} the time of others of its kind"
        return Headline([text], [f"{slow.row.case.run}: {brief(slow.row.key)}", slow.row.case.run])
    minor = max(_MINOR, key=counts.__getitem__)
    text = f"{counts[minor]} of {measured} {minor}" if counts[minor] else f"no trouble in {measured}"
    return Headline([f"usable{';' if 2 * counts[minor] <= len(tried) else ', but'} {text}"], of_machine)


def _of_machine(peaks: Mapping[str, Row], elsewhere: Sequence[Elsewhere]) -> Sequence[str]:
    """Return texts of the lowest share of a published peak, or else of the kind of work that is slowest beside a reference run."""
    if peaks:
        where, row = min(peaks.items(), key=lambda peak: peak[1].rate.peak_fraction or 0.0)
        share = percent(row.rate.peak_fraction or 0.0)
        text = f"{share} of the published peak"
        return [f"{where}: {text}", f"{where}: {share} of peak", text] if len(peaks) > 1 else [text]
    if not elsewhere:
        return [""]
    of_kinds = ((each.device, kind, middle(found).ratio) for each in elsewhere for kind, found in each.kinds.items())
    device, kind, lowest = min(of_kinds, key=lambda found: found[2].speedup)
    if lowest.is_undecided:
        return f"no difference shown to {device}", "no difference shown to the reference"
    return f"{kind} {lowest.brief} the reference {device}", f"{kind} {lowest.brief} the reference", f"{lowest.brief} the reference"


def _trouble(rows: Sequence[Row], where: str = "") -> list[Trouble]:
    """Return the signs of trouble that any of these rows show, the gravest first."""
    showing = {sign: list(filter(shows, rows)) for sign, shows in _SIGNS.items()}
    return [Trouble(sign, found, len(rows), where) for sign, found in showing.items() if found]
