# SPDX-License-Identifier: MIT
# Sourced by tools/test, behind tools/lib.sh: builds of the library as packagers and strangers make them, with other options and for
# other machines, without the tests. Each is installed below itself, and examples/ring.c built against that, by pkg-config, and run.
# shellcheck shell=bash

# Of the host backend's 8 ranks each prints what its left neighbour sent.
ring_says() {
	local out
	out=$(SPMT_BACKEND=host timeout 120 "$@") || return 1
	diff <(sort -n -k 2 <<<"$out") <(for r in 0 1 2 3 4 5 6 7; do echo "rank $r of 8 received $((100 + (r + 7) % 8))"; done)
}

# installed NAME ARGUMENT..: builds into build/NAME and installs into build/NAME/root. SETUP: its prefix, if another.
installed() {
	local dir=build/$1
	shift
	build "$dir" "--prefix=$PWD/$dir/root" -Ddevice_images=disabled "$@" &&
		DESTDIR='' meson install -C "$dir" --no-rebuild --quiet
}

# ring NAME PKG_CONFIG_ARGUMENT COMPILER..: examples/ring.c as build/NAME/ring, linked with what is installed there. The argument may
# be empty.
ring() {
	local dir=build/$1 how=$2 words flags=()
	shift 2
	words=$(PKG_CONFIG_LIBDIR=$PWD/$(dirname "$(find "$dir/root" -name spmt.pc)"):$(pkg-config --variable pc_path pkg-config) \
		pkg-config ${how:+"$how"} --cflags --libs spmt) || return 1
	eval "flags=($words)" # pkg-config writes them for a shell
	"$@" -Wall -Wextra -Werror examples/ring.c -o "$dir/ring" "${flags[@]}"
}

shared_ring() { # NAME RUNNER..
	local dir=build/$1 library
	shift
	library=$(dirname "$(find "$dir/root" -name libspmt.so)")
	ring_says "$@" env "LD_LIBRARY_PATH=$library" "$dir/ring"
}

plain_build() { # NAME SETUP ARGUMENT..: shared, by the machine's gcc or another CC
	CC=${CC:-gcc} installed "$@" && ring "$1" '' gcc && shared_ring "$1" && "build/$1/root/bin/spmt-info" && "build/$1/spmt-demo" &&
		[ ! -e "build/$1/tests" ]
}

# A static library shows the functions of the shared one, and no other name that a program may have, too.
static_names() {
	local a so
	a=$(find "build/$1/root" -name libspmt.a) so=$(find "build/$1/root" -name libspmt.so)
	diff <(nm -D --defined-only "$so" | awk '$2 == "T" { sub("@.*", "", $3); print $3 }' | sort) \
		<(nm -g --defined-only "$a" | awk 'NF == 3 { print $3 }' | sort)
}

static_build() {
	CC=gcc installed both -Dwerror=true -Ddefault_library=both && static_names both &&
		CC=gcc installed static -Dwerror=true -Ddefault_library=static -Dhwloc=enabled && [ -z "$(find build/static/root -name '*.so*')" ] &&
		ring static --static gcc && ring_says build/static/ring && build/static/root/bin/spmt-info
}

# As distributions build: for /usr, into a folder. Nothing there needs a RUNPATH.
usr_build() {
	local dir=build/usr file
	CC=gcc build "$dir" -Dwerror=true -Ddevice_images=disabled --prefix=/usr && rm -rf "$dir/root" &&
		DESTDIR=$PWD/$dir/root meson install -C "$dir" --no-rebuild --quiet || return 1
	for file in "$dir"/root/usr/bin/spmt-{info,perf} "$(find "$dir/root/usr" -name libspmt.so)"; do
		! readelf -d "$file" | grep -E 'RPATH|RUNPATH' || return 1
	done
	LD_LIBRARY_PATH=$(dirname "$file") "$dir/root/usr/bin/spmt-perf" --tests barrier --rounds 1
}

# A libc that has nothing of glibc's own. Debian's musl brings no headers of the kernel.
musl_build() {
	local headers=$PWD/build/kernel-headers
	mkdir -p "$headers" &&
		ln -sfn /usr/include/linux "$headers/linux" &&
		ln -sfn /usr/include/asm-generic "$headers/asm-generic" &&
		ln -sfn "/usr/include/$(gcc -print-multiarch)/asm" "$headers/asm" || return 1
	# CMSG_NXTHDR() of musl converts signs.
	CC=musl-gcc installed musl -Dwerror=true -Ddefault_library=static -Dhwloc=disabled -Doshmem=disabled \
		"-Dc_args=-idirafter $(printf %q "$headers") -Wno-sign-conversion" &&
		ring musl --static musl-gcc -static && ring_says build/musl/ring && build/musl/spmt-demo &&
		{ SPMT_BACKEND=nosuch build/musl/root/bin/spmt-perf --tests put8 2>&1 || true; } | grep '^spmt-perf: Invalid argument: '
}

arm_build() {
	local emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
	installed aarch64 -Dwerror=true --cross-file tools/cross/aarch64-linux-gnu.ini &&
		ring aarch64 '' aarch64-linux-gnu-gcc || return 1
	ring_says "${emulator[@]}" -E "LD_LIBRARY_PATH=$PWD/build/aarch64/root/lib" build/aarch64/ring &&
		timeout 120 "${emulator[@]}" build/aarch64/spmt-demo
}

# meson asks dpkg-architecture for Debian's folder. Without it, too, libraries go where pkg-config looks for them.
folder_found() {
	local bin=build/no-dpkg-dev dir=build/folder folder
	rm -rf "$bin" "$dir"
	mkdir -p "$bin"
	ln -s /usr/bin/* "$bin" && rm -f "$bin/dpkg-architecture" &&
		PATH=$PWD/$bin CC=gcc meson setup "$dir" --prefix=/usr/local -Ddevice_images=disabled || return 1
	folder=$(sed -n 's|^libdir=${prefix}|/usr/local|p' "$dir/spmt.pc")
	pkg-config --variable pc_path pkg-config | tr : '\n' | grep -x "$folder/pkgconfig" && ldconfig_looks "$folder"
}

ldconfig_looks() {
	/sbin/ldconfig -v -N 2>/dev/null | grep "^$1:"
}

# As one step of all, every other of those that compile all: the next commit has the others.
step_builds() {
	if [ -z "$bound" ] || [ "$((commits % 2))" = 0 ]; then
		# The newest: what the other steps build by clang is built by Debian's.
		CC=clang-19 check 'a build by clang' plain_build clang -Dwerror=true
		check 'a release build, with LTO' plain_build lto --buildtype=release -Db_lto=true
		check 'a static program with musl' musl_build
	fi
	if [ -z "$bound" ] || [ "$((commits % 2))" = 1 ]; then
		check 'a debug build (gcc -O0)' plain_build debug -Dwerror=true --buildtype=debug
		check 'a static library' static_build
		check 'a build for /usr' usr_build
		check '64-bit ARM, emulated' arm_build
	fi
	check 'without dpkg-dev libraries go where they are looked for' folder_found
}
