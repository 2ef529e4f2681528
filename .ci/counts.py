"""How many tests of many pytest runs passed: python .ci/counts.py FOLDER [--files].

Reads FOLDER/*.xml, as ``pytest --junitxml`` writes them, and says why tests were skipped. Ends with
status 1 where one failed, or where a file ended without a result.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def main(folder: Path, by_file: bool) -> int:
    """Print the counts of a folder."""
    counts, reasons, wrong, seconds = Counter(), Counter(), [], 0.0
    for file in sorted(folder.glob("*.xml")):
        cases = list(ElementTree.parse(file).iter("testcase"))
        own = Counter()
        for case in cases:
            seconds += float(case.get("time", 0))
            # A case that failed and then could not clean up has two of these; it is one case.
            kinds = {one.tag: one for one in case}
            name = f"{file.stem}: {case.get('name')}"
            if "error" in kinds or "failure" in kinds:
                own["failed"] += 1
                text = kinds.get("failure", kinds.get("error")).get("message", "")
                wrong.append(f"{name}: {(text.splitlines() or [''])[0][:120]}")
            elif "skipped" in kinds:
                own["skipped"] += 1
                reasons[kinds["skipped"].get("message", "")] += 1
            else:
                own["passed"] += 1
        if not cases:
            own["without a result"] += 1
            wrong.append(f"{file.stem}: ended without a result")
        counts += own
        if by_file:
            print(file.stem, *(f"{number} {kind}" for kind, number in own.items()), sep="  ")
    for reason, number in reasons.most_common():
        print(f"skipped {number}: {reason}")
    print(*wrong, sep="\n")
    print(f"{len(list(folder.glob('*.xml')))} files, {seconds:.0f} s in tests")
    print(", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped")))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--files" in sys.argv[2:]))
