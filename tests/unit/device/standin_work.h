/* SPDX-License-Identifier: MIT */
/* For the suites of device_cuda and device_hip: a rank's work with a device, whatever fails in
   it. */
#ifndef TESTS_STANDIN_WORK_H
#define TESTS_STANDIN_WORK_H

#include "src/device/device.h"

/* Every op that binds a device, those included that have to be refused; what could be made is
   taken back. */
struct standin_scene {
	void *plain, *symmetric, *retired, *host, *seen, *base, *import;
	device_stream s;
	device_event e;
	struct device_export range; /* of what is committed */
	size_t g;
	int fd; /* that names it, if exported */
	bool opened[2], committed, exported, mapped;
};

/* How many ops failed, or were not refused; the scene is zeroed. */
int standin_work(const struct backend *b, struct standin_scene *x);
int standin_undo(const struct backend *b, const struct standin_scene *x);

#endif
