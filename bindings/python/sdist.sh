#!/bin/sh
# SPDX-License-Identifier: MIT
# Run by meson dist: the library's source, as it is committed, in place of the link to it, which leads nowhere outside this tree.
set -eu
library=$MESON_DIST_ROOT/subprojects/libspmt
rm "$library"
mkdir "$library"
git -C "$MESON_SOURCE_ROOT/../.." archive HEAD . ':!tests' ':!bindings/python' | tar -x -C "$library"
