/* SPDX-License-Identifier: MIT */
/* Images for suites that do not want the library's: what the stand-ins look at, and nothing
   behind it. */
#ifndef TESTS_STANDIN_IMAGES_H
#define TESTS_STANDIN_IMAGES_H

#include "src/kernels/images.h"

static const unsigned char image_text80[] = ".version 7.8\n.target sm_80\n.address_size 64\n";
static const unsigned char image_text100[] = ".version 8.6\n.target sm_100\n.address_size 64\n";
static const unsigned char image_cubin[64] = { 0x7f, 'E', 'L', 'F' };
static const unsigned char image_gfx90a[64] = { 0x7f, 'E', 'L', 'F', [48] = 0x3f };
static const unsigned char image_gfx942[64] = { 0x7f, 'E', 'L', 'F', [48] = 0x4c };

const struct device_image device_images[] = {
	{ "sm_100", "ptx", image_text100, sizeof(image_text100) },
	{ "gfx90a", "hsaco", image_gfx90a, sizeof(image_gfx90a) },
	{ "sm_80", "ptx", image_text80, sizeof(image_text80) },
	{ "sm_90", "cubin", image_cubin, sizeof(image_cubin) },
	{ "gfx942", "hsaco", image_gfx942, sizeof(image_gfx942) },
};
const size_t device_image_count = sizeof(device_images) / sizeof(device_images[0]);

#endif
