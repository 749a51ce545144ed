"""An interpreter for ``make gpu`` by a script: which commands it is given, and what each takes, writes and ends with."""

from pathlib import Path

import scripted_card

from benchmarks.reference import main
from benchmarks.reference_suites import LATER, SHORT
from dlbench.core.measurement import Measurement, Samples, measurement_to_json
from dlbench.core.model import Case, Status
from dlbench.core.store import load
from dlbench.core.writer import ResultWriter

CPU, GPU = scripted_card.CPU, scripted_card.CARD
SUITES = [*SHORT, *LATER]
CASES = 2


class Machine:
    """An interpreter whose commands take the time, write the rounds and end with the code that a script says."""

    def __init__(self, devices=(CPU, GPU)):
        self.devices = devices
        self.now = 1000.0
        self.asked_s = 0.0
        """What the devices take to be listed: each time, or one time after the other."""
        self.calls = []
        self.script = {}
        """Name of a piece to what its calls do, one after the other: seconds (None: all it may), rounds measured (None: all), exit code."""
        self.report = '<testcase classname="tests.gpu.test_gpu" name="test_one"/>'
        """What pytest's own report has of the tests that are run."""
        self.foreign = set()
        """Names of files that another machine's software wrote."""

    def __call__(self, arguments, limit_s):
        self.calls.append((tuple(arguments), limit_s))
        piece = piece_of(arguments)
        if "--resume" in arguments and piece in self.foreign:
            self.now += 5
            return 2
        seconds, rounds, code = (self.script.get(piece) or [(10, None, 0)]).pop(0)
        self.now += limit_s if seconds is None else min(seconds, limit_s)
        if piece == "tests":
            Path(arguments[arguments.index("--junitxml") + 1]).write_text(REPORT.format(self.report))
        wanted = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else 0
        if "-o" in arguments:
            header = {"policy": {"rounds": wanted}, "planned": {"count": CASES}}
            self.write(ResultWriter.create(Path(arguments[-1]), header), range(wanted if rounds is None else rounds))
        elif "--resume" in arguments:
            run = load(Path(arguments[4]))
            begun = len(run.measurements) // CASES
            self.write(ResultWriter.resume(run.path), range(begun, wanted if rounds is None else begun + rounds))
        return code

    def write(self, writer, rounds, status=Status.OK, footer=True):
        for number in rounds:
            for n in range(CASES):
                case = Case(f"noop[n={n}]@cpu", "quick", "noop", {"n": n}, "cpu")
                samples = Samples(1, (1.0,), 1.0, 1.0, True) if status is Status.OK else None
                writer.append(measurement_to_json(Measurement(case, number, status, samples=samples)))
        if footer:
            writer.append({"kind": "footer"})
        writer.close()

    def reference(self, into, *arguments):
        return main(["--into", str(into), *arguments], self, self.ask, lambda: self.now)

    def ask(self):
        self.now += self.asked_s.pop(0) if isinstance(self.asked_s, list) else self.asked_s
        return scripted_card.hello(*self.devices)

    def pieces(self):
        """What was run, in order, with + where it was resumed."""
        return [f"{'+' * ('--resume' in words)}{piece_of(words)}" for words, _ in self.calls]


REPORT = "<testsuites><testsuite>{}</testsuite></testsuites>"


def piece_of(words):
    """The piece that a command is of."""
    return "tests" if "pytest" in words else Path(words[-1] if "-o" in words else words[4]).stem


def words_after(words, option):
    return [words[at + 1] for at, word in enumerate(words) if word == option]
