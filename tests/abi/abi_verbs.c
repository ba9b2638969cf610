/* SPDX-License-Identifier: MIT */
/* Compiling is the test: abi_verbs.h says of libibverbs what infiniband/verbs.h says. */
#include <infiniband/verbs.h>

#include "transports/verbs/abi/abi_verbs.h"

#define X(name, value) _Static_assert((int)IBV_##name == (int)VERBS_##name, #name);
VERBS_VALUES(X)
#undef X

#define SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), #ours)
#define AT(ours, theirs, field)                                                                   \
	_Static_assert(offsetof(struct ours, field) == offsetof(struct theirs, field) &&          \
			sizeof(((struct ours *)0)->field) == sizeof(((struct theirs *)0)->field), \
		#ours "." #field)

_Static_assert(sizeof(union verbs_gid) == sizeof(union ibv_gid), "gid");
SIZE(verbs_ops, ibv_context_ops);
AT(verbs_ops, ibv_context_ops, poll_cq);
AT(verbs_ops, ibv_context_ops, req_notify_cq);
AT(verbs_ops, ibv_context_ops, post_send);
AT(verbs_ops, ibv_context_ops, post_recv);
SIZE(verbs_ctx, ibv_context);
AT(verbs_ctx, ibv_context, ops);
AT(verbs_ctx, ibv_context, async_fd);
SIZE(verbs_mr, ibv_mr);
AT(verbs_mr, ibv_mr, lkey);
AT(verbs_mr, ibv_mr, rkey);
SIZE(verbs_channel, ibv_comp_channel);
AT(verbs_channel, ibv_comp_channel, fd);
SIZE(verbs_cq, ibv_cq);
AT(verbs_cq, ibv_cq, context);
AT(verbs_cq, ibv_cq, cqe);
SIZE(verbs_qp, ibv_qp);
AT(verbs_qp, ibv_qp, context);
AT(verbs_qp, ibv_qp, qp_context);
AT(verbs_qp, ibv_qp, qp_num);
SIZE(verbs_device_attr, ibv_device_attr);
AT(verbs_device_attr, ibv_device_attr, max_qp_wr);
AT(verbs_device_attr, ibv_device_attr, max_cqe);
AT(verbs_device_attr, ibv_device_attr, max_qp_rd_atom);
AT(verbs_device_attr, ibv_device_attr, max_qp_init_rd_atom);
AT(verbs_device_attr, ibv_device_attr, atomic_cap);
AT(verbs_device_attr, ibv_device_attr, phys_port_cnt);
SIZE(verbs_port, ibv_port_attr);
AT(verbs_port, ibv_port_attr, state);
AT(verbs_port, ibv_port_attr, active_mtu);
AT(verbs_port, ibv_port_attr, gid_tbl_len);
AT(verbs_port, ibv_port_attr, max_msg_sz);
AT(verbs_port, ibv_port_attr, lid);
AT(verbs_port, ibv_port_attr, link_layer);
SIZE(verbs_gid_entry, ibv_gid_entry);
AT(verbs_gid_entry, ibv_gid_entry, gid_type);
SIZE(verbs_sge, ibv_sge);
AT(verbs_sge, ibv_sge, length);
AT(verbs_sge, ibv_sge, lkey);
SIZE(verbs_send, ibv_send_wr);
AT(verbs_send, ibv_send_wr, next);
AT(verbs_send, ibv_send_wr, sg_list);
AT(verbs_send, ibv_send_wr, num_sge);
AT(verbs_send, ibv_send_wr, opcode);
AT(verbs_send, ibv_send_wr, send_flags);
AT(verbs_send, ibv_send_wr, wr);
AT(verbs_send, ibv_send_wr, wr.rdma.remote_addr);
AT(verbs_send, ibv_send_wr, wr.rdma.rkey);
AT(verbs_send, ibv_send_wr, wr.atomic.remote_addr);
AT(verbs_send, ibv_send_wr, wr.atomic.compare_add);
AT(verbs_send, ibv_send_wr, wr.atomic.swap);
AT(verbs_send, ibv_send_wr, wr.atomic.rkey);
AT(verbs_send, ibv_send_wr, wr.ud.ah);
AT(verbs_send, ibv_send_wr, wr.ud.remote_qpn);
AT(verbs_send, ibv_send_wr, wr.ud.remote_qkey);
SIZE(verbs_recv, ibv_recv_wr);
AT(verbs_recv, ibv_recv_wr, next);
AT(verbs_recv, ibv_recv_wr, sg_list);
AT(verbs_recv, ibv_recv_wr, num_sge);
SIZE(verbs_wc, ibv_wc);
AT(verbs_wc, ibv_wc, status);
AT(verbs_wc, ibv_wc, opcode);
AT(verbs_wc, ibv_wc, byte_len);
AT(verbs_wc, ibv_wc, qp_num);
AT(verbs_wc, ibv_wc, src_qp);
SIZE(verbs_qp_cap, ibv_qp_cap);
AT(verbs_qp_cap, ibv_qp_cap, max_inline_data);
SIZE(verbs_qp_init, ibv_qp_init_attr);
AT(verbs_qp_init, ibv_qp_init_attr, cap);
AT(verbs_qp_init, ibv_qp_init_attr, qp_type);
SIZE(verbs_ah_attr, ibv_ah_attr);
AT(verbs_ah_attr, ibv_ah_attr, grh.sgid_index);
AT(verbs_ah_attr, ibv_ah_attr, grh.hop_limit);
AT(verbs_ah_attr, ibv_ah_attr, grh.traffic_class);
AT(verbs_ah_attr, ibv_ah_attr, dlid);
AT(verbs_ah_attr, ibv_ah_attr, is_global);
AT(verbs_ah_attr, ibv_ah_attr, port_num);
SIZE(verbs_qp_attr, ibv_qp_attr);
AT(verbs_qp_attr, ibv_qp_attr, path_mtu);
AT(verbs_qp_attr, ibv_qp_attr, qkey);
AT(verbs_qp_attr, ibv_qp_attr, rq_psn);
AT(verbs_qp_attr, ibv_qp_attr, sq_psn);
AT(verbs_qp_attr, ibv_qp_attr, dest_qp_num);
AT(verbs_qp_attr, ibv_qp_attr, qp_access_flags);
AT(verbs_qp_attr, ibv_qp_attr, ah_attr);
AT(verbs_qp_attr, ibv_qp_attr, pkey_index);
AT(verbs_qp_attr, ibv_qp_attr, max_rd_atomic);
AT(verbs_qp_attr, ibv_qp_attr, max_dest_rd_atomic);
AT(verbs_qp_attr, ibv_qp_attr, min_rnr_timer);
AT(verbs_qp_attr, ibv_qp_attr, port_num);
AT(verbs_qp_attr, ibv_qp_attr, timeout);
AT(verbs_qp_attr, ibv_qp_attr, retry_cnt);
AT(verbs_qp_attr, ibv_qp_attr, rnr_retry);
SIZE(verbs_event, ibv_async_event);
AT(verbs_event, ibv_async_event, event_type);

/* The calls, in the header's own types: some are macros there. */
#undef ibv_query_port
#undef ibv_reg_mr
#define verbs_ctx ibv_context
#define verbs_device ibv_device
#define verbs_device_attr ibv_device_attr
#define verbs_port_old _compat_ibv_port_attr
#define verbs_gid ibv_gid
#define verbs_gid_entry ibv_gid_entry
#define verbs_pd ibv_pd
#define verbs_mr ibv_mr
#define verbs_channel ibv_comp_channel
#define verbs_cq ibv_cq
#define verbs_qp ibv_qp
#define verbs_qp_init ibv_qp_init_attr
#define verbs_qp_attr ibv_qp_attr
#define verbs_ah ibv_ah
#define verbs_ah_attr ibv_ah_attr
#define verbs_event ibv_async_event
struct theirs {
#define X(field, symbol, optional, result, args) result(*field) args;
	VERBS_CALLS(X)
#undef X
};
#define X(field, symbol, optional, result, args)                                              \
	_Static_assert(__builtin_types_compatible_p(                                          \
			       __typeof__(((struct theirs *)0)->field), __typeof__(&symbol)), \
		#symbol);
VERBS_CALLS(X)
#undef X
