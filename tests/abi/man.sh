#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every function, struct and enum of spmt.h has a man page, made from its comment by docs/man.py; the pages are valid; what has no
# comment is refused by name.
. "$(dirname "$0")/lib.sh"

if ! command -v python3 >/dev/null; then
	skip 'man pages' 'no python3'
	plan
	exit
fi
pages=$scratch/man3
succeeds 'the pages are made' python3 docs/man.py include/spmt.h --out "$pages" --version test

# Not by the generator's own reading of the header, but by the compiler's.
echo '#include "spmt.h"' >"$scratch/probe.c"
gcc -std=c11 -Iinclude -aux-info "$scratch/protos" -fsyntax-only "$scratch/probe.c"
sed -nE '/^\/\* include\/spmt\.h:.*\*\/ extern /s/.*[ *](spmt_[a-z0-9_]+) \(.*/\1/p' "$scratch/protos" | sort -u >"$scratch/functions"
gcc -std=c11 -Iinclude -E -P "$scratch/probe.c" | grep -oE '\b(struct|enum) spmt_[a-z0-9_]+ \{' | cut -d ' ' -f 2 | sort -u >"$scratch/types"
nothing_in 'spmt.h has functions, structs and enums at all' \
	"$(if [ "$(wc -l <"$scratch/functions")" -le 50 ] || [ "$(wc -l <"$scratch/types")" -le 5 ]; then cat "$scratch/functions" "$scratch/types"; fi)"

# The page of a name, be it that of another.
page_of() {
	local page=$pages/$1.3 to
	to=$(sed -n 's|^\.so man3/||p' "$page" 2>/dev/null)
	echo "$pages/${to:-$1.3}"
}
missing='' unnamed='' undeclared=''
while read -r name; do
	page=$(page_of "$name")
	if [ ! -f "$page" ]; then
		missing+="$name"$'\n'
		continue
	fi
	sed -n '/^\.SH NAME/,/^\.SH SYN/p' "$page" | grep -qw "$name" || unnamed+="$name in $(basename "$page")"$'\n'
	sed -n '/^\.SH SYN/,/^\.SH DES/p' "$page" | grep -qE "\b$name( ?\(| \{|\b)" || undeclared+="$name in $(basename "$page")"$'\n'
done < <(cat "$scratch/functions" "$scratch/types")
nothing_in 'each has a page' "${missing%$'\n'}"
nothing_in 'which names it' "${unnamed%$'\n'}"
nothing_in 'and shows its declaration' "${undeclared%$'\n'}"
empty=''
for page in "$pages"/*.3; do
	if ! grep -q '^\.so ' "$page" && [ -z "$(sed '1,/^\.SH DESCRIPTION/d; /^\.SH/,$d' "$page")" ]; then
		empty+="$page"$'\n'
	fi
done
nothing_in 'none is without a description' "${empty%$'\n'}"
nothing_in 'what pages refer to is there' "$(grep -hoE '\bspmt[a-z0-9_]*\(3\)' "$pages"/*.3 | sort -u | sed 's/(3)//' |
	while read -r name; do [ -f "$pages/$name.3" ] || echo "$name"; done)"
for part in Words Threads Errors Waiting Order Fork Uids; do
	nothing_in "spmt(3) has the part $part" "$(grep -qx "\\.SH ${part^^}" "$pages/spmt.3" || echo none)"
done

if command -v groff >/dev/null; then
	nothing_in 'groff takes every page without a warning' "$(cd "$scratch" && for page in man3/*.3; do groff -man -ww -z "$page" 2>&1; done)"
	nothing_in 'what groff prints of spmt_put has its prototype' \
		"$(groff -man -Tascii -P-bcou "$pages/spmt_put.3" | grep -qF 'int spmt_put(spmt_comm *comm, void *dst, const void *src, size_t size, int pe);' || echo none)"
else
	skip 'groff takes every page without a warning' 'no groff'
fi
nothing_in 'as plain text the pages are the same ones' "$(python3 docs/man.py include/spmt.h --text | grep -cE '^SYNOPSIS$' |
	diff - <(grep -L '^\.so ' "$pages"/*.3 | wc -l))"

# A folder of the user's, with pages of an older release.
kept=$scratch/kept
mkdir -p "$kept/src"
echo '.TH OTHER 3' >"$kept/other.3"
echo text >"$kept/notes"
cp "$pages/spmt_put.3" "$kept/spmt_gone.3"
echo '.so man3/spmt_put.3' >"$kept/spmt_led.3"
succeeds 'pages are made in a folder that is there' python3 docs/man.py include/spmt.h --out "$kept" --version test
nothing_in 'of which old pages go, and nothing else' "$(diff <(ls "$kept") <({ ls "$pages" && printf '%s\n' notes other.3 src; } | sort))"
succeeds 'whatever the umask, all may read a folder that was made' \
	bash -c 'umask 077 && python3 docs/man.py include/spmt.h --out "$1" && [ "$(stat -c %a "$1")" = 755 ]' - "$scratch/masked"

# said NAME STATUS SENTENCE: what "$scratch/err" has, whole.
said() {
	nothing_in "$1" "$([ "$2, $(cat "$scratch/err")" = "$3" ] || { echo "exit status $2"; cat "$scratch/err"; })"
}
python3 docs/man.py "$scratch/none.h" --list 2>"$scratch/err"
said 'a header that is not there is told in a sentence' $? "1, man.py: $scratch/none.h: No such file or directory"
python3 docs/man.py include/spmt.h --text >/dev/full 2>"$scratch/err"
said 'and so is a full disk' $? '1, man.py: the output: No space left on device'
python3 docs/man.py include/spmt.h --text 2>"$scratch/err" | true
said 'a reader that ends first is told nothing' $? '1, '

# refused NAME SED_EXPRESSION PATTERN: of a header that is changed so.
refused() {
	local rc=0
	sed -E "$2" include/spmt.h >"$scratch/changed.h"
	python3 docs/man.py "$scratch/changed.h" --out "$scratch/none" >"$scratch/err" 2>&1 || rc=$?
	nothing_in "refused: $1" "$({ [ "$rc" != 0 ] && grep -qE -- "$3" "$scratch/err"; } || { echo "exit status $rc"; cat "$scratch/err"; })"
}
refused 'a function without a comment' 's|^#define SPMT_SPLIT_NONE.*|&\n\nSPMT_API int spmt_new(spmt_comm *comm);|' 'spmt_new has no comment'
refused 'a struct without one' 's|^#define SPMT_SPLIT_NONE.*|&\n\nstruct spmt_new {\n\tint a;\n};|' 'spmt_new has no comment'
refused 'a name that stands twice' 's|^SPMT_API int spmt_quiet\(.*|&\nSPMT_API int spmt_fence(spmt_comm *comm);|' 'spmt_fence stands in line'
refused 'a comment that has no short sentence in front' 's|^(/\* Completes everything)|\1 yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy|' \
	'spmt_quiet does not begin with a sentence'
plan
