/* SPDX-License-Identifier: MIT */
#ifndef SPMT_VIEW_H
#define SPMT_VIEW_H

#include "spmt/comm/comm.h"

void view_prepare(spmt_comm *comm); /* once the links stand */
void view_fill(spmt_comm *comm, struct spmt_view *view);

#endif
