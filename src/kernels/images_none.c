/* SPDX-License-Identifier: MIT */
#include "images.h"

/* One unused row, because C has no empty arrays. */
const struct device_image device_images[1];
const size_t device_image_count;
