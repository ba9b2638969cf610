#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What meson setup writes, and what it refuses: a build that could not be what was asked for would be found out later, or never.
. "$(dirname "$0")/lib.sh"
unset CC CFLAGS LDFLAGS DESTDIR

# set_up NAME ARGUMENT..: in $scratch/build, with its output in $scratch/log.
set_up() {
	rm -rf "$scratch/build"
	meson setup "$scratch/build" "$@" --auto-features=disabled >"$scratch/log" 2>&1
}

# refused NAME SENTENCE ARGUMENT..
refused() {
	local name=$1 sentence=$2
	shift 2
	nothing_in "refused: $name" "$({ ! set_up "$@" && grep -qF "ERROR: $sentence" "$scratch/log"; } || tail -n 5 "$scratch/log")"
}

# pc_says NAME FLAGS ARGUMENT..: what a shell makes of pkg-config's words for that build, one a line.
pc_says() {
	local name=$1 want=$2 flags
	shift 2
	set_up "$@"
	flags=$(PKG_CONFIG_PATH=$scratch/build pkg-config --cflags --libs spmt)
	eval "set -- $flags"
	nothing_in "$name" "$(printf '%s\n' "$@" | diff - <(printf '%s\n' "$want"))"
}
if command -v pkg-config >/dev/null; then
	pc_says 'spmt.pc names the folders of its prefix' $'-I/opt/spmt/include\n-L/opt/spmt/lib\n-lspmt' --prefix=/opt/spmt --libdir=lib
	pc_says 'with blanks, too' $'-I/opt/our  own/include\n-L/opt/our  own/lib\n-lspmt' '--prefix=/opt/our  own' --libdir=lib
	pc_says 'and those that lie elsewhere' $'-I/opt/in here\n-L/opt/lib there\n-lspmt' --prefix=/opt/spmt '--libdir=/opt/lib there' '--includedir=/opt/in here'
else
	skip 'spmt.pc names the folders of its prefix' 'no pkg-config'
fi
for mark in '"' "'" '#' $'\t' $'\\'; do
	refused "a prefix with $mark" 'Problem encountered: prefix has a character that spmt.pc cannot have:' "--prefix=/opt/our${mark}own"
done

# objcopy hides names in machine code, which clang's objects have none of then.
if command -v clang >/dev/null; then
	for kind in static both; do
		CC=clang refused "libspmt.a with clang's LTO ($kind)" 'Problem encountered: libspmt.a with LTO is made by gcc alone' -Db_lto=true -Ddefault_library=$kind
	done
else
	skip "libspmt.a with clang's LTO" 'no clang'
fi
CC=gcc succeeds "libspmt.a with gcc's" set_up -Db_lto=true -Ddefault_library=static

# without PROGRAM COMMAND..: where there is no such program
without() {
	local bin=$scratch/without-$1
	mkdir -p "$bin"
	ln -sf /usr/bin/* "$bin"
	rm -f "$bin/$1"
	shift
	PATH=$bin "$@"
}
refused 'kernels for no GPU' 'Problem encountered: device_images=enabled, but device_archs names no GPU' -Ddevice_images=enabled -Ddevice_archs=
refused 'the kernels of a folder, and none' 'Problem encountered: device_images_from, but device_images (or auto_features) is disabled' \
	-Ddevice_images=disabled "-Ddevice_images_from=$scratch"
if command -v clang-19 ld.lld-19 >"$scratch/found" && [ "$(wc -l <"$scratch/found")" = 2 ]; then
	without clang-19 refused 'kernels without their compiler' "Program 'clang-19' not found" -Ddevice_images=enabled
	without ld.lld-19 refused "AMD's kernels without their linker" "Program 'ld.lld-19' not found" -Ddevice_images=enabled
	without ld.lld-19 succeeds "NVIDIA's without it" set_up -Ddevice_images=enabled -Ddevice_archs=sm_80,sm_90
	succeeds 'GPUs that are named twice' set_up -Ddevice_images=enabled -Ddevice_archs=sm_90,gfx942,sm_90 -Dtest_archs=gfx942,gfx942 -Dtests=auto
else
	skip 'kernels for GPUs' 'no clang-19, ld.lld-19'
fi

# What pip builds.
succeeds 'the Python package' set_up bindings/python
nothing_in 'installs no man pages, for which pip has no folder' "$(meson introspect --install-plan "$scratch/build" | grep -oE '"destination": "[{]mandir[^,]*')"
if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
	meson dist -C "$scratch/build" --allow-dirty --no-tests --formats gztar >"$scratch/log" 2>&1
	mkdir "$scratch/dist"
	tar -xzf "$scratch/build/meson-dist"/*.tar.gz -C "$scratch/dist" --strip-components=1
	succeeds 'its archive has the source of the library' meson setup "$scratch/dist/build" "$scratch/dist" --auto-features=disabled
else
	skip 'its archive has the source of the library' 'no git checkout'
fi
plan
