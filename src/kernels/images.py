#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Device images for the library.

images.py ptx IN OUT        PTX as it is embedded: no comments, and every kernel fit for blocks of 1024 (those of ll, ll12, push2, twoshot, give and of plans: of 512)
images.py table OUT [ARCH KIND FILE]..    the table of src/kernels/images.h, its data included by the assembler
"""
import os
import re
import sys

LL_THREADS = 512  # COLL_LL_THREADS, COLL_LL12_THREADS of src/kernels/coll/table.h
TWOSHOT_THREADS = 512  # COLL_TWOSHOT_THREADS

HEAD = """/* SPDX-License-Identifier: MIT */
/* Made by src/kernels/images.py. */
#include "src/kernels/images.h"

"""
DATA = """__asm__(".pushsection .rodata\\n"
	".balign 16\\n"
	"spmt_image_{i}:\\n"
	".incbin \\"{path}\\"\\n"
	"spmt_image_{i}_end:\\n"
	".byte 0\\n"
	".popsection\\n");
extern const unsigned char spmt_image_{i}[] __attribute__((visibility("hidden")));
"""


def bounds(kernel):
    # Two blocks at once: 128 registers at the most, and ptxas does not put any into memory for a third.
    if kernel.startswith(("spmt_kernel_ll_", "spmt_kernel_ll12_", "spmt_kernel_plan_packets_")):
        return f".maxntid {LL_THREADS}, 1, 1\n.minnctapersm 1\n"
    if kernel.startswith(("spmt_kernel_push2_", "spmt_kernel_twoshot_", "spmt_kernel_plan")) or kernel == "spmt_kernel_give":
        return f".maxntid {TWOSHOT_THREADS}, 1, 1\n"
    return ".maxntid 1024, 1, 1\n"


def ptx(source, target):
    with open(source, encoding="ascii") as f:
        text = f.read()
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"[ \t]*\n\s*", "\n", text)
    # Without it the driver may take more registers than a block of 1024 threads has.
    text, n = re.subn(r"(\.visible \.entry (\w+)\([^)]*\)\n)", lambda m: m[1] + bounds(m[2]), text)
    if n == 0:
        sys.exit(f"{source}: no kernels")
    with open(target, "w", encoding="ascii") as f:
        f.write(text)


def table(target, rows):
    images = [tuple(rows[i:i + 3]) for i in range(0, len(rows), 3)]
    out = HEAD
    for i, (_, _, path) in enumerate(images):
        out += DATA.format(i=i, path=os.path.abspath(path))
    out += "\nconst struct device_image device_images[] = {\n"
    for i, (arch, kind, path) in enumerate(images):
        # Text ends in a zero byte, which its size counts.
        size = os.path.getsize(path) + (1 if kind == "ptx" else 0)
        out += f'\t{{ "{arch}", "{kind}", spmt_image_{i}, {size} }},\n'
    out += "};\n"
    out += f"const size_t device_image_count = {len(images)};\n"
    with open(target, "w", encoding="ascii") as f:
        f.write(out)


if sys.argv[1] == "ptx":
    ptx(sys.argv[2], sys.argv[3])
else:
    table(sys.argv[2], sys.argv[3:])
