#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A sentence is for people: no code of the library compares one. What code has to know of it stands beside it (src/base/status.h).
. "$(dirname "$0")/lib.sh"

compares='\b(str|mem)n?(case)?(cmp|str|mem)\('
sentences='sentence|reason|cause|->why|\.why|strerror|status_text|last_error|"[a-z_]+[: ]+"|"spmt_'
nothing_in 'no comparison of sentences' "$(grep -rnE --include='*.[ch]' "${compares}[^;]*(${sentences})" src heap transports spmt include)"
nothing_in "what cannot be done has the header's code alone, SPMT_ERR_UNSUPPORTED" \
	"$(grep -rnE --include='*.[ch]' '\bE(NOTSUP|OPNOTSUPP)\b' src heap transports spmt)"
# Who puts a rank in front where none stands would say it twice.
nothing_in 'a sentence that begins with its rank is one of fail_rank' "$(cat spmt/*/*.c heap/*.c transports/*.c transports/*/*.c src/*/*.c |
	tr '\n' ' ' | grep -oE '\bfail(_errno)?\([^;"]*"rank %d: [^"]*')"
plan
