#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# spmt.h declares, src/libspmt.map lists and libspmt.so exports the same functions.
. "$(dirname "$0")/lib.sh"

map=src/libspmt.map
so=$build_root/libspmt.so

# every function that spmt.h itself declares, static ones left out
echo '#include "spmt.h"' >"$scratch/probe.c"
gcc -std=c11 -Iinclude -aux-info "$scratch/protos" -fsyntax-only "$scratch/probe.c"
sed -nE '/^\/\* include\/spmt\.h:.*\*\/ extern /s/.*[ *](spmt_[a-z0-9_]+) \(.*/\1/p' "$scratch/protos" | sort -u >"$scratch/declared"

sed -E 's|/\*.*\*/||' "$map" | grep -oE '^[[:space:]]*spmt[a-z0-9_]*;' | tr -d ' \t;' | sort >"$scratch/listed"
nm -D --defined-only "$so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$scratch/exported"

nothing_in 'spmt.h declares functions at all' "$([ -s "$scratch/declared" ] || echo none)"
nothing_in 'declared but not in the map' "$(comm -23 "$scratch/declared" "$scratch/listed")"
nothing_in 'in the map but not declared' "$(comm -13 "$scratch/declared" "$scratch/listed")"
nothing_in 'in the map but not exported' "$(comm -23 "$scratch/listed" "$scratch/exported")"
nothing_in 'exported but not in the map' "$(comm -13 "$scratch/listed" "$scratch/exported")"
nothing_in 'listed twice' "$(uniq -d "$scratch/listed")"

unversioned=$(nm -D --defined-only --with-symbol-versions "$so" | awk '$2 != "A" && $3 !~ /@@?SPMT_[0-9]+\.[0-9]+$/')
nothing_in 'every export has a version' "$unversioned"
nothing_in 'stanzas are named SPMT_<major>.<minor>' "$(grep -E '\{' "$map" | grep -vE '^SPMT_[0-9]+\.[0-9]+ \{$')"
nothing_in 'the only wildcard is local: *' "$(tr -d ' \t\n' <"$map" | sed 's/local:\*;//' | grep -F '*')"
nothing_in 'SPMT_API stands in spmt.h alone' \
	"$(sources include src heap transports spmt tools | xargs grep -lw SPMT_API | grep -vx include/spmt.h)"

# What ends the program, handles its signals or moves its threads is the application's. (pthread_sigmask stays out of it: the
# library's own threads take no signals; __cxa_atexit and the like are the compiler's. sched_setaffinity is for one of them, which binds
# itself.)
hosts='exit _exit _Exit quick_exit at_quick_exit abort atexit on_exit __assert __assert_fail __assert_perror_fail raise kill killpg tgkill
	pthread_kill pthread_exit pthread_cancel signal sigaction __sysv_signal sigset sigvec sigignore sigaltstack sigprocmask
	pthread_setaffinity_np pthread_attr_setaffinity_np sched_setscheduler sched_setparam pthread_setschedparam setpriority nice'
nm -D --undefined-only "$so" | awk '{ sub(/@.*/, "", $2); print $2 }' | sort -u >"$scratch/wanted"
nothing_in 'wanted symbols are seen at all' "$(grep -qx calloc "$scratch/wanted" || echo 'no calloc')"
nothing_in 'no exit, abort, assert, signal handler or affinity of its own' "$(tr -s ' \t\n' '\n' <<<"$hosts" | grep -xFf - "$scratch/wanted")"
nothing_in 'and that of a thread of its own alone' "$(sources src heap transports spmt | xargs grep -n 'sched_setaffinity' |
	grep -v '^transports/verbs/nic.c:.*sched_setaffinity(0, ')"

size=$(readelf -lW "$so" | awk '$1 == "TLS" { print $6 }')
nothing_in 'thread-local data stays under 4 KiB' "$([ $((${size:-0})) -lt 4096 ] || echo "$((size)) bytes")"
plan
