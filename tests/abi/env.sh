#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The table of docs/environment.md is what the table of src/base/env.h gives. With --print: prints what it has to be.
. "$(dirname "$0")/lib.sh"

cat >"$scratch/print.c" <<'END'
#include <stdio.h>
#include "src/base/env.h"
#define X(field, text, how, value, about) { .name = text, .def = value, .help = about, ENV_ROW_##how },
static const struct env_row rows[] = { ENV_TABLE(X) };
static void cell(const char *text)
{
	for (const char *c = text; *c; c++)
		printf(*c == '|' || *c == '<' ? "\\%c" : "%c", *c);
}
int main(void)
{
	puts("| variable | kind | default | meaning |\n|---|---|---|---|");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		printf("| `%s` | %s | %s | ", rows[i].name, rows[i].kind_name, *rows[i].def ? rows[i].def : "unset");
		if (rows[i].accepts) {
			cell("(");
			cell(rows[i].accepts);
			cell(") ");
		}
		cell(rows[i].help);
		puts(" |");
	}
	return 0;
}
END
gcc -std=gnu11 -I. -o "$scratch/print" "$scratch/print.c" && "$scratch/print" >"$scratch/want"
if [ "${1:-}" = --print ]; then
	cat "$scratch/want"
	exit
fi

nothing_in 'the table has rows' "$([ "$(wc -l <"$scratch/want")" -gt 4 ] || echo none)"
awk '/^\| variable \|/ { inside = 1 } !/^\|/ { inside = 0 } inside' docs/environment.md >"$scratch/have"
nothing_in "the table of docs/environment.md is that of src/base/env.h (tests/abi/env.sh --print)" "$(diff "$scratch/have" "$scratch/want")"

# The library's words on variables: only those that exist, read in one place.
sed -nE 's/^\| `(SPMT_[A-Z_]+)`.*/\1/p' "$scratch/want" | sort >"$scratch/names"
nothing_in 'the environment is read in src/base/env*.c alone' \
	"$(sources src heap transports spmt | xargs grep -nwE 'getenv|secure_getenv|environ' | grep -v '^src/base/env\(_near\)\?\.[ch]:')"
used=$({ sources src heap transports spmt tools; ls README.md docs/*.md; } | xargs grep -hoE '\bSPMT_[A-Z_]+=' | tr -d = | sort -u)
# Tests have some of their own.
grep -rhoE 'getenv\("SPMT_[A-Z_]+"' --include='*.[ch]' tests | cut -d '"' -f 2 | sort -u - "$scratch/names" >"$scratch/all_names"
nothing_in 'no sentence names a variable that does not exist' "$(comm -23 <(printf '%s\n' "$used" | grep .) "$scratch/all_names")"
plan
