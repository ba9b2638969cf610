# SPDX-License-Identifier: MIT
"""For tests of the package, which need no JAX."""

import sys
import traceback


def main(cases):
    """Runs functions in turn, those that the command line names."""
    failed = 0
    wanted = sys.argv[1:]
    cases = [case for case in cases if not wanted or case.__name__ in wanted]
    print("1..%d" % len(cases))
    for number, case in enumerate(cases, 1):
        try:
            case()
            print("ok %d - %s" % (number, case.__name__.replace("_", " ")), flush=True)
        except BaseException:
            failed += 1
            print("not ok %d - %s" % (number, case.__name__))
            print("# " + traceback.format_exc().replace("\n", "\n# "), flush=True)
    sys.exit(failed != 0)
