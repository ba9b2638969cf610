#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# vendor.sh VENDOR HEADER SOURCE COMPILER..: our declarations of a vendor's runtime against its header, where there is one.
. "$(dirname "$0")/lib.sh"

vendor=$1 header=$2 source=$3
shift 3
places=(/usr/include /opt/rocm/include "${CUDA_HOME:-/usr/local/cuda}/include")
if pmix=$(pkg-config --variable=includedir pmix 2>/dev/null); then
	places+=("$pmix")
fi
if nvcc=$(command -v nvcc); then
	places+=("$(dirname "$(realpath "$nvcc")")/../include")
fi
name="abi_$vendor.c agrees with $header"
for place in "${places[@]}"; do
	[ -f "$place/$header" ] || continue
	succeeds "$name in $place" "$@" -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -I. -isystem "$place" "$source"
	plan
	exit
done
skip "$name" "no $header"
plan
