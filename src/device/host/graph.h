/* SPDX-License-Identifier: MIT */
/*
 * Graphs of the host runtime: what is pushed to a stream between begin and end is kept, not run, and each launch runs a copy of all
 * of it, in order, as one piece of work. Handles may be stale: they are told from live ones.
 */
#ifndef SPMT_DEVICE_HOST_GRAPH_H_
#define SPMT_DEVICE_HOST_GRAPH_H_

#include "src/device/types.h"

struct host_graph;
struct host_op;

int host_graph_begin(int dev, device_stream stream);
/* The capture is over in any case. */
int host_graph_end(int dev, device_stream stream, struct host_graph **graph);
/* Launches of one graph run one after the other, whatever streams they are in. */
int host_graph_launch(int dev, struct host_graph *graph, device_stream stream);
/* What was launched still runs. -EBADF: not a live graph. */
int host_graph_destroy(struct host_graph *graph);

bool host_graph_capturing(int dev, device_stream stream);

/* By stream.c, under the stream's lock, of one that is being captured: takes op over; or why not, without a sentence: SPMT_ERR_UNSUPPORTED, it
   can run but once. */
int host_graph_keep(struct host_graph *graph, struct host_op *op);
/* The capture ends with its stream. Not under the stream's lock. Takes NULL. */
void host_graph_abandon(struct host_graph *graph);

extern const struct device_graph_ops host_graph_ops;

#endif
