/* SPDX-License-Identifier: MIT */
/*
 * What this transport knows of libibverbs, declared here so that building needs no rdma-core. tests/abi/abi_verbs.c compares every line with
 * infiniband/verbs.h where that is installed. Work is posted and completions are polled through context->ops; the rest are
 * symbols of the library.
 */
#ifndef SPMT_ABI_VERBS_H
#define SPMT_ABI_VERBS_H

#include "abi_verbs_work.h"

/* X(field, symbol, optional, result, arguments) */
#define VERBS_CALLS(X)                                                                         \
	X(get_device_list, ibv_get_device_list, 0, struct verbs_device **, (int *n))           \
	X(free_device_list, ibv_free_device_list, 0, void, (struct verbs_device * *list))      \
	X(device_name, ibv_get_device_name, 0, const char *, (struct verbs_device * device))   \
	X(open_device, ibv_open_device, 0, struct verbs_ctx *, (struct verbs_device * device)) \
	X(close_device, ibv_close_device, 0, int, (struct verbs_ctx * context))                \
	X(query_device, ibv_query_device, 0, int,                                              \
		(struct verbs_ctx * context, struct verbs_device_attr * attr))                 \
	X(query_port, ibv_query_port, 0, int,                                                  \
		(struct verbs_ctx * context, uint8_t port, struct verbs_port_old * attr))      \
	X(query_gid, ibv_query_gid, 0, int,                                                    \
		(struct verbs_ctx * context, uint8_t port, int index, union verbs_gid *gid))   \
	X(query_gid_ex, _ibv_query_gid_ex, 1, int,                                             \
		(struct verbs_ctx * context, uint32_t port, uint32_t index,                    \
			struct verbs_gid_entry * entry, uint32_t flags, size_t size))          \
	X(alloc_pd, ibv_alloc_pd, 0, struct verbs_pd *, (struct verbs_ctx * context))          \
	X(dealloc_pd, ibv_dealloc_pd, 0, int, (struct verbs_pd * pd))                          \
	X(reg_mr, ibv_reg_mr, 0, struct verbs_mr *,                                            \
		(struct verbs_pd * pd, void *at, size_t n, int access))                        \
	X(reg_dmabuf, ibv_reg_dmabuf_mr, 1, struct verbs_mr *,                                 \
		(struct verbs_pd * pd, uint64_t offset, size_t n, uint64_t at, int fd,         \
			int access))                                                           \
	X(dereg_mr, ibv_dereg_mr, 0, int, (struct verbs_mr * mr))                              \
	X(create_channel, ibv_create_comp_channel, 0, struct verbs_channel *,                  \
		(struct verbs_ctx * context))                                                  \
	X(destroy_channel, ibv_destroy_comp_channel, 0, int, (struct verbs_channel * channel)) \
	X(create_cq, ibv_create_cq, 0, struct verbs_cq *,                                      \
		(struct verbs_ctx * context, int n, void *user, struct verbs_channel *channel, \
			int vector))                                                           \
	X(resize_cq, ibv_resize_cq, 0, int, (struct verbs_cq * cq, int n))                     \
	X(destroy_cq, ibv_destroy_cq, 0, int, (struct verbs_cq * cq))                          \
	X(get_cq_event, ibv_get_cq_event, 0, int,                                              \
		(struct verbs_channel * channel, struct verbs_cq * *cq, void **user))          \
	X(ack_cq_events, ibv_ack_cq_events, 0, void, (struct verbs_cq * cq, unsigned n))       \
	X(get_async_event, ibv_get_async_event, 0, int,                                        \
		(struct verbs_ctx * context, struct verbs_event * event))                      \
	X(ack_async_event, ibv_ack_async_event, 0, void, (struct verbs_event * event))         \
	X(create_qp, ibv_create_qp, 0, struct verbs_qp *,                                      \
		(struct verbs_pd * pd, struct verbs_qp_init * init))                           \
	X(modify_qp, ibv_modify_qp, 0, int,                                                    \
		(struct verbs_qp * qp, struct verbs_qp_attr * attr, int mask))                 \
	X(destroy_qp, ibv_destroy_qp, 0, int, (struct verbs_qp * qp))                          \
	X(create_ah, ibv_create_ah, 0, struct verbs_ah *,                                      \
		(struct verbs_pd * pd, struct verbs_ah_attr * attr))                           \
	X(destroy_ah, ibv_destroy_ah, 0, int, (struct verbs_ah * ah))                          \
	X(wc_status_str, ibv_wc_status_str, 0, const char *, (unsigned status))

struct verbs_api {
#define X(field, symbol, optional, result, args) result(*field) args;
	VERBS_CALLS(X)
#undef X
};

#endif
