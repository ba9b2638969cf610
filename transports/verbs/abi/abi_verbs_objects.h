/* SPDX-License-Identifier: MIT */
/* Of abi_verbs.h: constants, and objects that libibverbs makes. */
#ifndef SPMT_ABI_VERBS_OBJECTS_H
#define SPMT_ABI_VERBS_OBJECTS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, value): VERBS_name is IBV_name */
#define VERBS_VALUES(X)                   \
	X(ACCESS_LOCAL_WRITE, 1)          \
	X(ACCESS_REMOTE_WRITE, 2)         \
	X(ACCESS_REMOTE_READ, 4)          \
	X(ACCESS_REMOTE_ATOMIC, 8)        \
	X(ATOMIC_NONE, 0)                 \
	X(ATOMIC_HCA, 1)                  \
	X(ATOMIC_GLOB, 2)                 \
	X(EVENT_CQ_ERR, 0)                \
	X(EVENT_QP_FATAL, 1)              \
	X(EVENT_QP_REQ_ERR, 2)            \
	X(EVENT_QP_ACCESS_ERR, 3)         \
	X(EVENT_DEVICE_FATAL, 8)          \
	X(EVENT_PORT_ACTIVE, 9)           \
	X(EVENT_PORT_ERR, 10)             \
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
	X(WR_RDMA_READ, 4)                \
	X(WR_ATOMIC_CMP_AND_SWP, 5)       \
	X(WR_ATOMIC_FETCH_AND_ADD, 6)

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

#endif
