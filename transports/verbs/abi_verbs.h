/* SPDX-License-Identifier: MIT */
/*
 * What this transport knows of libibverbs, declared here so that building needs no rdma-core. tests/abi/abi_verbs.c compares every line with
 * infiniband/verbs.h where that is installed. Work is posted and completions are polled through context->ops; the rest are
 * symbols of the library.
 */
#ifndef SPMT_ABI_VERBS_H
#define SPMT_ABI_VERBS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, value): VERBS_name is IBV_name */
#define VERBS_VALUES(X)                   \
	X(ACCESS_LOCAL_WRITE, 1)          \
	X(ACCESS_REMOTE_WRITE, 2)         \
	X(ACCESS_REMOTE_READ, 4)          \
	X(EVENT_QP_FATAL, 1)              \
	X(EVENT_QP_REQ_ERR, 2)            \
	X(EVENT_QP_ACCESS_ERR, 3)         \
	X(EVENT_DEVICE_FATAL, 8)          \
	X(GID_TYPE_ROCE_V2, 2)            \
	X(LINK_LAYER_ETHERNET, 2)         \
	X(PORT_ACTIVE, 4)                 \
	X(QPS_ERR, 6)                     \
	X(QPS_INIT, 1)                    \
	X(QPS_RTR, 2)                     \
	X(QPS_RTS, 3)                     \
	X(QPT_RC, 2)                      \
	X(QPT_UD, 4)                      \
	X(QP_STATE, 1 << 0)               \
	X(QP_ACCESS_FLAGS, 1 << 3)        \
	X(QP_PKEY_INDEX, 1 << 4)          \
	X(QP_PORT, 1 << 5)                \
	X(QP_QKEY, 1 << 6)                \
	X(QP_AV, 1 << 7)                  \
	X(QP_PATH_MTU, 1 << 8)            \
	X(QP_TIMEOUT, 1 << 9)             \
	X(QP_RETRY_CNT, 1 << 10)          \
	X(QP_RNR_RETRY, 1 << 11)          \
	X(QP_RQ_PSN, 1 << 12)             \
	X(QP_MAX_QP_RD_ATOMIC, 1 << 13)   \
	X(QP_MIN_RNR_TIMER, 1 << 15)      \
	X(QP_SQ_PSN, 1 << 16)             \
	X(QP_MAX_DEST_RD_ATOMIC, 1 << 17) \
	X(QP_DEST_QPN, 1 << 20)           \
	X(SEND_SIGNALED, 2)               \
	X(SEND_SOLICITED, 4)              \
	X(SEND_INLINE, 8)                 \
	X(WC_SUCCESS, 0)                  \
	X(WC_WR_FLUSH_ERR, 5)             \
	X(WC_REM_ACCESS_ERR, 10)          \
	X(WC_RETRY_EXC_ERR, 12)           \
	X(WC_RNR_RETRY_EXC_ERR, 13)       \
	X(WC_FATAL_ERR, 19)               \
	X(WC_RESP_TIMEOUT_ERR, 20)        \
	X(WC_RECV, 128)                   \
	X(WR_RDMA_WRITE, 0)               \
	X(WR_SEND, 2)                     \
	X(WR_RDMA_READ, 4)

enum {
#define X(name, value) VERBS_##name = value,
	VERBS_VALUES(X)
#undef X
};

struct verbs_device;
struct verbs_pd;
struct verbs_ah;
struct verbs_port_old; /* the first bytes of a verbs_port */

union verbs_gid {
	uint8_t raw[16];
	uint64_t words[2]; /* subnet, interface */
};

struct verbs_qp;
struct verbs_cq;
struct verbs_send;
struct verbs_recv;
struct verbs_wc;

/* Which of them another version of the library calls otherwise, nobody calls here. */
struct verbs_ops {
	void *before_poll[11];
	int (*poll_cq)(struct verbs_cq *cq, int n, struct verbs_wc *wc);
	int (*req_notify_cq)(struct verbs_cq *cq, int solicited_only);
	void *before_send[12];
	int (*post_send)(struct verbs_qp *qp, struct verbs_send *wr, struct verbs_send **bad);
	int (*post_recv)(struct verbs_qp *qp, struct verbs_recv *wr, struct verbs_recv **bad);
	void *behind[5];
};

struct verbs_ctx {
	struct verbs_device *device;
	struct verbs_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

struct verbs_mr {
	struct verbs_ctx *context;
	struct verbs_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct verbs_channel {
	struct verbs_ctx *context;
	int fd, refcnt;
};

struct verbs_cq {
	struct verbs_ctx *context;
	struct verbs_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};

struct verbs_qp {
	struct verbs_ctx *context;
	void *qp_context;
	struct verbs_pd *pd;
	struct verbs_cq *send_cq, *recv_cq;
	void *srq;
	uint32_t handle, qp_num;
	uint32_t state, qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct verbs_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom,
		max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
	uint32_t atomic_cap;
	int behind[14];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct verbs_port {
	uint32_t state, max_mtu, active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed,
		phys_state, link_layer, flags;
	uint16_t port_cap_flags2;
};

struct verbs_gid_entry {
	union verbs_gid gid;
	uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

struct verbs_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct verbs_send {
	uint64_t wr_id;
	struct verbs_send *next;
	struct verbs_sge *sg_list;
	int num_sge;
	uint32_t opcode;
	unsigned send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			struct verbs_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		} ud;
		uint64_t words[4];
	} wr;
	uint64_t behind[7];
};

struct verbs_recv {
	uint64_t wr_id;
	struct verbs_recv *next;
	struct verbs_sge *sg_list;
	int num_sge;
};

struct verbs_wc {
	uint64_t wr_id;
	uint32_t status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp;
	unsigned wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct verbs_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct verbs_qp_init {
	void *qp_context;
	struct verbs_cq *send_cq, *recv_cq;
	void *srq;
	struct verbs_qp_cap cap;
	uint32_t qp_type;
	int sq_sig_all;
};

struct verbs_ah_attr {
	struct {
		union verbs_gid dgid;
		uint32_t flow_label;
		uint8_t sgid_index, hop_limit, traffic_class;
	} grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct verbs_qp_attr {
	uint32_t qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned qp_access_flags;
	struct verbs_qp_cap cap;
	struct verbs_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
		port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

struct verbs_event {
	union {
		void *object;
		struct verbs_qp *qp;
		int port_num;
	} element;
	uint32_t event_type;
};

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
