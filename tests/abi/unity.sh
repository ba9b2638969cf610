#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The files of the library, and those of each tool, compile as one unit each, as --unity=on makes them: no two have a name of their own in common.
. "$(dirname "$0")/lib.sh"

# as_one TARGET: all its files at once, with the flags that they were built with. Nothing is compiled but for errors.
as_one() {
	python3 - "$build_root" "$1" <<-'END'
		import json, os, shlex, subprocess, sys

		build, target = sys.argv[1:]
		with open(os.path.join(build, "compile_commands.json")) as f:
		    files = [c for c in json.load(f) if c.get("output", "").startswith(target + ".p/")]
		if len(files) < 2:
		    sys.exit(f"{len(files)} files of {target}")
		compiler, *flags = shlex.split(files[0]["command"])
		flags = [x for x in flags if x.startswith(("-I", "-D", "-std=", "-f", "-m", "-isystem"))]
		unit = "".join(f'#include "{c["file"]}"\n' for c in files)
		sys.exit(subprocess.run([compiler, *flags, "-fdiagnostics-color=never", "-w", "-fsyntax-only", "-x", "c", "-"], input=unit, text=True, cwd=build).returncode)
	END
}

succeeds 'the library' as_one libspmt-core.a
for tool in tools/spmt-*/meson.build; do
	name=$(basename "$(dirname "$tool")")
	succeeds "$name" as_one "$name"
done
plan
