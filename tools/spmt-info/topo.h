/* SPDX-License-Identifier: MIT */
/* Private to spmt-info. Codes and sentences as everywhere in the library. */
#ifndef SPMT_INFO_TOPO_H
#define SPMT_INFO_TOPO_H

#include "info.h"
#include "tools/topo/topo.h"

void topo_print(const struct topo *t, bool devices);
/* The matrix of the recorded ranks; m is the caller's to matrix_free. */
int topo_routes(const struct topo *t, struct matrix *m);
int topo_write(const struct topo *t, const char *path);

#endif
