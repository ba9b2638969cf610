#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/device_api.md is what spmt_device.h has: macros make most of its functions, so that nobody finds them in it. With --print: prints
# what the file has to be.
. "$(dirname "$0")/../lib.sh"

header=$scratch/header.h # its parts in their places
awk -f include/one_file.awk include/spmt_device.h >"$header"
list=docs/device_api.md

# One line a function, behind the name of its section: the compiler writes out what macros make, and drops comments.
prototypes() {
	sed 's/^\/\* ---- \([a-z].*[a-z]\) -* *\*\/$/;@section \1;/' "$header" >"$scratch/sections.h"
	gcc -std=c11 -E -P "$scratch/sections.h" | tr '\n\t' '  ' | sed 's/[;{}]/&\n/g' | sed -nE '
		s/ *;?@section ([^;]*);?$/## \1/p
		s/^ *static +inline +__attribute__\(\(unused\)\) (.*[ *]spmtd_[a-z0-9_]*[a-z0-9] ?\(.*\)) *\{$/\1;/p' |
		sed -E '/^## /!{ s/ +/ /g; s/\( /(/g; s/ \)/)/g }'
}
print() {
	cat <<-END
		# The calls inside kernels

		Every function of \`spmt_device.h\`, a line each; what holds for all of them stands at the header's top. Made by
		\`tests/abi/device/device_api.sh --print\`.
	END
	# a section that has none is left out
	prototypes | awk '
		/^## / { if (open) print "```"; open = 0; title = $0; next }
		!open { print "\n" title "\n\n```c"; open = 1 }
		{ print }
		END { if (open) print "```" }'
}
print >"$scratch/want"
if [ "${1:-}" = --print ]; then
	cat "$scratch/want"
	exit
fi

nothing_in "$list is what the header has (tests/abi/device/device_api.sh --print)" "$(diff $list "$scratch/want" 2>&1)"
# Found in another way: every such name before a parenthesis in what the compiler sees.
sed -nE 's/.*[ *](spmtd_[a-z0-9_]*)\(.*;$/\1/p' $list | sort >"$scratch/listed"
gcc -std=c11 -E -P "$header" | grep -oE '\bspmtd_[a-z0-9_]*[a-z0-9] ?\(' | tr -d ' (' | sort -u >"$scratch/seen"
nothing_in 'the list has every function once' "$(diff "$scratch/listed" "$scratch/seen")"
nothing_in 'there are hundreds' "$([ "$(wc -l <"$scratch/listed")" -gt 500 ] || wc -l <"$scratch/listed")"
plan
