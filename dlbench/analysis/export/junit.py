"""Comparisons as JUnit XML, for CI systems."""

from collections.abc import Sequence
from xml.etree import ElementTree

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.verdict import Comparison
from dlbench.analysis.export.compare_export import severity
from dlbench.analysis.report.compare_terminal import count, word
from dlbench.core.units import one_line, relative_change

_ENDINGS = {"error": "failure", "warning": "skipped"}
"""Of a test whose case has such a severity."""


def junit(comparisons: Sequence[Comparison]) -> bytes:
    """Return JUnit XML: a suite a comparison, a test a case.

    Slower, missing and failed are failures; inconclusive, incomparable and not measured are skipped; so is slower where different machines
    are only reported on. A comparison that could not have failed, or could not see what it must, has one more test, which ends in an error.
    """
    suites = ElementTree.Element("testsuites")
    for comparison in comparisons:
        suite = ElementTree.SubElement(suites, "testsuite", name=one_line(comparison.title))
        for case in comparison.cases:
            workload = case.case.partition("[")[0]
            test = ElementTree.SubElement(suite, "testcase", classname=one_line(workload), name=one_line(case.case))
            if kind := "skipped" if case.verdict is Verdict.NOT_MEASURED else _ENDINGS.get(severity(case, comparison.report_only) or ""):
                change = f" by {relative_change(case.shown.change)}" if case.shown and "time" in case.regressed else ""
                message = one_line(f"{word(case)}{change}{': ' if case.note else ''}{case.note}")
                ElementTree.SubElement(test, kind, message=message)
        if reason := comparison.undecidable:
            test = ElementTree.SubElement(suite, "testcase", classname="dlbench", name="the comparison decides")
            ElementTree.SubElement(test, "error", message=one_line(reason))
        suite.set("tests", str(len(suite)))
        for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"*/{kind}"))))
        ElementTree.SubElement(suite, "system-out").text = count(comparison.cases)
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document
