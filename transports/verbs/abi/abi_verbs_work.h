/* SPDX-License-Identifier: MIT */
/* Of abi_verbs.h: what is asked of a device, posted to it and heard from it. */
#ifndef SPMT_ABI_VERBS_WORK_H
#define SPMT_ABI_VERBS_WORK_H

#include "abi_verbs_objects.h"

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
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
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

#endif
