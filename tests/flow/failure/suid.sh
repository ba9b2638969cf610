#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A set-user-ID program takes nothing from its caller's environment: no library is loaded, no file written, no word of it obeyed.
. "$(dirname "$0")/../../abi/lib.sh"

nobody=65534 dir=$scratch/set
mkdir "$dir" && chmod 755 "$scratch" "$dir"
unset "${!SPMT_HOST_@}" SPMT_BACKEND SPMT_FAULT SPMT_LOG

# as_nobody VARIABLE=VALUE.. PROGRAM..: its words, and those of what it has loaded
as_nobody() {
	timeout 60 setpriv --reuid=$nobody --regid=$nobody --clear-groups env "$@" 2>&1
}

reason=''
cp "$build_root/libspmt.so.0" "$dir/" && chmod 755 "$dir/libspmt.so.0"
if [ "$(id -u)" != 0 ]; then
	reason='needs root'
elif ! command -v setpriv >/dev/null; then
	reason='no setpriv(1)'
elif ! gcc -O1 -Iinclude -o "$dir/plain" tests/flow/failure/suid.c "$dir/libspmt.so.0" -Wl,-rpath,"$dir" 2>"$scratch/err"; then
	reason="the library does not stand alone: $(head -n 1 "$scratch/err" | cut -c 1-100)"
else
	cp "$dir/plain" "$dir/raised" && chmod 755 "$dir/plain" && chmod 4755 "$dir/raised"
	said=$(as_nobody SPMT_BACKEND=host "$dir/raised" || true)
	grep -q 'euid 0: ' <<<"$said" || reason="set-user-ID does not work in $scratch: ${said:0:100}"
fi
if [ -n "$reason" ]; then
	skip 'a set-user-ID program' "$reason"
	plan
	exit
fi

cat >"$scratch/caller.c" <<'END'
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { fprintf(stderr, "loaded with euid %d\n", (int)geteuid()); }
END
gcc -shared -fPIC -o "$dir/caller.so" "$scratch/caller.c" && chmod 755 "$dir/caller.so"

job='PMIX_NAMESPACE=x PMIX_RANK=0'
for which in HIP CUDA PMIX; do
	words='' more=''
	[ $which != PMIX ] || { words=job more=$job; }
	# shellcheck disable=SC2086 # words
	said=$(as_nobody $more "SPMT_${which}_LIB=$dir/caller.so" "$dir/plain" $words)
	nothing_in "a plain program loads SPMT_${which}_LIB" "$(grep -q "loaded with euid $nobody" <<<"$said" || echo "$said")"
	# shellcheck disable=SC2086 # words
	said=$(as_nobody $more "SPMT_${which}_LIB=$dir/caller.so" "$dir/raised" $words)
	nothing_in "a set-user-ID program does not load SPMT_${which}_LIB" "$(grep loaded <<<"$said")"
	nothing_in "and has run ($which)" "$(grep -q "^uid $nobody euid 0: " <<<"$said" || echo "$said")"
done

mkdir -m 1777 "$dir/open"
as_nobody SPMT_BACKEND=host "SPMT_ROUTES=$dir/open/plain" "$dir/plain" >/dev/null
as_nobody SPMT_BACKEND=host "SPMT_ROUTES=$dir/open/raised" "$dir/raised" >/dev/null
nothing_in 'a plain program alone writes SPMT_ROUTES' "$([ "$(ls "$dir/open")" = plain ] || ls -l "$dir/open")"
said=$(as_nobody SPMT_HOST_DEVICES=3 SPMT_BACKEND=host "$dir/plain")
nothing_in 'a plain program has the devices asked for' "$(grep -q ' 3 devices: a world' <<<"$said" || echo "$said")"
said=$(as_nobody SPMT_HOST_DEVICES=3 SPMT_BACKEND=host SPMT_FAULT=any:1 SPMT_TIMEOUT_MS=soon SPMT_LOG=debug "$dir/raised")
nothing_in 'a set-user-ID program obeys no variable, and minds no bad one' \
	"$(grep -qE ' ([0124-9]|[1-9][0-9]+) devices: a world$' <<<"$said" || echo "$said"; grep '^spmt: ' <<<"$said")"
cp "$build_root/spmt-info" "$dir/info" && chmod 4755 "$dir/info"
said=$(as_nobody SPMT_HEAP_SIZE=12M "$dir/info" --env)
nothing_in 'spmt-info --env says that nothing is read' "$(grep -q '^none is read' <<<"$said" || echo "$said")"
nothing_in 'and shows no value' "$(grep 12M <<<"$said")"
plan
