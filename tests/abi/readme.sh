#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The program in README.md compiles without a warning, in C and C++ where it says so, and runs; the two commands stand alone
# in the first fenced block; what is said of installing works as it is written.
. "$(dirname "$0")/lib.sh"

awk '/^```/ { n++; next } n == 1' README.md >"$scratch/first"
for command in tools/demo tools/test; do
	nothing_in "$command stands on a line of its own in the first block" "$(grep -qx "$command" "$scratch/first" || echo missing)"
	succeeds "$command --help says how, and nothing else happens" sh -c "timeout 5 $command --help | grep '^usage: $command'"
	nothing_in "an argument that $command does not know is a usage error" "$(timeout 5 "$command" --bogus >/dev/null 2>&1 || [ $? = 2 ] || echo 'another exit status')"
done

awk '/^```c$/ && !done { inside = 1; next } /^```/ && inside { done = 1; inside = 0 } inside' README.md >"$scratch/readme.c"
lines=$(wc -l <"$scratch/readme.c")
nothing_in "the program has 10 to 35 lines ($lines)" "$([ "$lines" -ge 10 ] && [ "$lines" -le 35 ] || echo "$lines")"
nothing_in 'it is examples/ring.c' "$(diff "$scratch/readme.c" examples/ring.c)"
succeeds 'it compiles' gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -o "$scratch/readme" "$scratch/readme.c" \
	-L"$build_root" -lspmt -lpthread
export LD_LIBRARY_PATH=$build_root SPMT_BACKEND=host
succeeds 'it runs' timeout 60 "$scratch/readme"
nothing_in 'it says something' "$(timeout 60 "$scratch/readme" 2>/dev/null | grep . >/dev/null || echo nothing)"

# The kernel's source, as each of its compilers takes it.
for cc in gcc clang; do
	compiles "ring_kernel.cu, $cc" "$cc" -x c -std=gnu11 -Wall -Wextra -Werror -Iinclude examples/ring_kernel.cu -L"$build_root" -lspmt \
		-o "$scratch/ring_kernel"
done
compiles 'ring_kernel.cu, nvcc' nvcc -Werror all-warnings -Iinclude -c examples/ring_kernel.cu -o "$scratch/o"
if [ -e /usr/include/hip/hip_runtime.h ]; then
	compiles 'ring_kernel.cu, clang-19 -x hip' clang-19 -x hip --cuda-device-only -nogpulib --offload-arch=gfx942 -O3 -Wall -Wextra -Werror \
		-Iinclude -S examples/ring_kernel.cu -o "$scratch/o"
else
	skip 'ring_kernel.cu, clang-19 -x hip' 'no libamdhip64-dev'
fi

# A prefix of one's own: the build's files there, found by the two variables as they are written. tools/test --only bare builds for one.
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside && /HOME/' README.md >"$scratch/private"
nothing_in 'a private prefix is set up and exported' "$([ "$(cut -d ' ' -f 1 "$scratch/private" | xargs)" = 'meson export' ] || cat "$scratch/private")"
# shellcheck disable=SC2016 # as it is written
nothing_in 'the folder of the libraries is the one that is exported' "$(grep -oE -- '--prefix=[^ ]* --libdir=[^ ]*|[A-Z_]+PATH=[^ ]*' "$scratch/private" |
	diff - <(printf '%s\n' '--prefix=$HOME/spmt --libdir=lib' 'PKG_CONFIG_PATH=$HOME/spmt/lib/pkgconfig' 'LD_LIBRARY_PATH=$HOME/spmt/lib'))"

# The documented lines as root, where /usr/local is empty and /etc a copy. They leave no trace: the mounts are this shell's alone.
# Of the build there is one already.
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside && /^(meson|cc) / && !/--prefix=/' README.md |
	sed "s|^meson setup build && meson install -C build|meson install -C '$build_root' --no-rebuild --quiet|" >"$scratch/lines"
nothing_in 'the lines to install, ring.c, ring_kernel.cu and job.c are there' "$([ "$(cut -d ' ' -f 1-3 "$scratch/lines" | sed 's/ \$.*//' | xargs)" = \
	'meson install -C cc ring.c cc -x c cc job.c' ] ||
	cat "$scratch/lines")"
cat >"$scratch/afresh" <<-'END'
	set -eu
	mkdir -p "$1/copy"
	cp -a /etc/. "$1/copy"
	mount --bind "$1/copy" /etc
	mount -t tmpfs none /usr/local
	[ ! -d /var/cache/ldconfig ] || mount -t tmpfs none /var/cache/ldconfig
	ldconfig
	command -v meson >/dev/null
END
prefix=$(meson introspect --buildoptions "$build_root" 2>/dev/null | grep -o '"name": "prefix", "value": "[^"]*"' | cut -d '"' -f 8)
name='README: what is installed is found'
if [ "$prefix" != /usr/local ]; then
	skip "$name" "the build's prefix is not /usr/local but '$prefix'"
elif ! unshare -m sh "$scratch/afresh" "$scratch" >/dev/null 2>&1; then
	skip "$name" 'needs root, and leave to mount'
else
	cp examples/ring.c examples/ring_kernel.cu examples/job.c "$scratch"
	# shellcheck disable=SC2016 # for the inner shell
	# In parentheses, since `set -e` passes over what fails before an &&.
	{ cat "$scratch/afresh"; echo 'cd "$1"'; sed 's/^/(/; s/$/\n)/' "$scratch/lines"; echo '[ "$(./ring_kernel | grep -c "put by a kernel")" = 8 ]'; echo 'timeout 60 ./job 2>&1 | grep "^job: spmt_init: .*mpirun"'; } >"$scratch/all"
	succeeds "$name" timeout 120 env -u LD_LIBRARY_PATH -u PKG_CONFIG_PATH unshare -m sh "$scratch/all" "$scratch"
fi
plan
