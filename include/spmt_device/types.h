/* SPDX-License-Identifier: MIT */
/* What kernels, their host and the library share: integer types, numbers, plain data. No functions. */
#ifndef SPMTD_TYPES_H
#define SPMTD_TYPES_H

/* ---- integer types -------------------------------------------------------------------------- */

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
#if defined(__HIPCC_RTC__)
typedef __SIZE_TYPE__ size_t;
#endif
#elif (defined(__AMDGCN__) || defined(__NVPTX__)) && !defined(__CUDA__) && !defined(__HIP__)
/* C for a device: there need not be a libc whose headers fit the target. */
typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT16_TYPE__ int16_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __SIZE_TYPE__ size_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif

/* See spmt_device.h, "Near". The library's own kernels, which get whole views, are compiled with SPMTD_NEAR alone. */
#if defined(SPMT_NEAR) && !defined(SPMTD_NEAR)
#define SPMTD_NEAR 1
#endif

/* ---- numbers shared with spmt.h ------------------------------------------------------------- */

#ifndef SPMT_SHARED_ENUMS
#define SPMT_SHARED_ENUMS
enum spmt_cmp { SPMT_CMP_EQ, SPMT_CMP_NE, SPMT_CMP_GT, SPMT_CMP_GE, SPMT_CMP_LT, SPMT_CMP_LE };

enum spmt_signal_op { SPMT_SIGNAL_SET, SPMT_SIGNAL_ADD };
#endif

/* What a wait returns beside 0: the same numbers as SPMT_ERR_TIMEOUT, .. and -EINVAL. */
enum spmtd_code {
	SPMTD_INVALID =
		-22, /* no such barrier session, root, compare, flag or index; packets beyond their buffer */
	SPMTD_TIMEOUT = -10001,
	SPMTD_ABORTED = -10002,
	SPMTD_MISMATCH = -10004,
	SPMTD_UNSUPPORTED = -10006 /* not with a peer that is reached by the host alone */
};

/* When the threads of a warp or block meet round a signal or a wait through a channel. */
enum spmtd_data_sync {
	SPMTD_DATA_SYNC_NONE,
	SPMTD_DATA_SYNC_BEFORE, /* what all of them have stored is sent before a signal */
	SPMTD_DATA_SYNC_AFTER,	/* all of them go on when a wait is over, with its code */
	SPMTD_DATA_SYNC_BOTH
};

/* What a record's wait was for. */
enum spmtd_what {
	SPMTD_WHAT_WAIT = 1,
	SPMTD_WHAT_SIGNAL,
	SPMTD_WHAT_SYNC,
	SPMTD_WHAT_BARRIER,
	SPMTD_WHAT_COLLECTIVE,
	SPMTD_WHAT_ON_STREAM, /* spmt_signal_wait_on_stream */
	SPMTD_WHAT_CHANNEL,
	SPMTD_WHAT_POST, /* what the host does for a kernel */
	SPMTD_WHAT_SDMA, /* what a copy engine does for one */
	SPMTD_WHAT_PORT
};

/* ---- plain data ----------------------------------------------------------------------------- */

#define SPMT_VIEW_ABI 2u

/* How one peer is reached. */
struct spmtd_peer {
	uint64_t base; /* address of its user heap as seen from here; 0: cannot be loaded from */
	uint64_t own;  /* address of its library area (struct spmtd_own) */
	uint64_t mine; /* this rank's user heap as the peer sees it; 0: as this rank does */
};

/* What a wait left behind when it ended without its condition: the first one counts. In
   host-visible memory. */
struct spmtd_record {
	uint64_t valid;	  /* 2: the rest is there; 0: free; written last */
	int32_t code;	  /* SPMTD_TIMEOUT, .. */
	int32_t pe;	  /* who waited */
	int32_t peer;	  /* for whom; -1: not known */
	uint32_t what;	  /* enum spmtd_what */
	uint64_t address; /* of the word */
	uint64_t expected, seen;
};

struct spmt_view;

/* One wait's way through pausing; private to the host's callbacks. */
struct spmtd_pause {
	uint32_t n;	/* pauses so far */
	uint32_t wakes; /* the count of wake-ups when the wait announced itself */
	int64_t begin;	/* ns */
};

/* Host backend only: how a wait sleeps and how a store wakes a sleeper. NULL on GPUs. */
struct spmtd_host {
	/* Between two looks at the word. 0: look again; else the code that ends the wait. */
	int (*pause)(const struct spmt_view *v, struct spmtd_pause *p);
	/* After a wait that paused at least once, however it ended. */
	void (*resume)(const struct spmt_view *v, struct spmtd_pause *p);
	/* After a store to pe's memory: wakes its sleepers; contains the fence that orders the
	   store before the look. */
	void (*wake)(const struct spmt_view *v, int32_t pe);
	/* A kernel of the library has not done what it was to do: its code. May be NULL. */
	void (*ended)(const struct spmt_view *v, int code);
	/* As pause, of a comm that is broken: 0 as long as a peer is to be waited for; p->wakes: which, from 1 on, 0: none of them. May be
	   NULL. */
	int (*pause_broken)(const struct spmt_view *v, struct spmtd_pause *p);
	/* After a post. May be NULL. */
	void (*posted)(const struct spmt_view *v);
};

struct spmt_view {
	uint32_t size, abi; /* size: set by the caller of spmt_view_get */
	int32_t pe, npes;
	uint64_t base;	    /* this rank's user heap */
	uint64_t heap_size; /* bytes */
	uint64_t stride;    /* not 0: peer heaps lie at flat + pe * stride, no table needed */
	uint64_t flat;
	const struct spmtd_peer *peers; /* npes of them */
	struct spmtd_own *own;		/* this rank's library area */
	const uint32_t *stop;		/* not 0: the world is broken */
	struct spmtd_record *record;
	uint64_t timeout_ns;	       /* 0: none */
	const struct spmtd_host *host; /* NULL on GPUs */
	uint64_t sessions; /* where barrier sessions begin in every rank's library area */
	uint64_t nsessions;
	uint64_t
		bulk; /* of a thread's or warp's copy: the shared memory it puts with (bulk.h); 0: none */
	uint64_t bulk_shape;
	struct spmtd_sdma *sdma; /* npes of them; NULL: kernels feed no copy engine */
#if !defined(SPMT_NEAR)
	const struct spmtd_fifo *fifo; /* not NULL: what some peers are reached by */
#endif
};

/*
 * What kernels of users need of the library area at the end of every rank's heap: struct spmtd_own, then
 * npes struct spmtd_inbox (index: the rank that writes). Peers write, the owner reads. Counters only
 * rise, but where a sync takes its arrivals back. Sizes and places stay: kernels that were compiled with an older header count by them.
 */
struct spmtd_inbox {
	uint64_t sync; /* writer's arrivals at device syncs */
	uint64_t reserved[3];
	uint64_t seen; /* where the writer sees this rank's user heap; written in init */
	uint64_t turn; /* in the rank's own: how many looks for one of many words have begun */
	uint64_t reserved2[4];
};
/*
 * A barrier session is a word a rank, in lines of its own: what that rank has arrived; in this rank's own place
 * how often it has met the others.
 */
struct spmtd_own {
	uint64_t sync_epoch; /* this rank's; lives on the device so that graphs replay */
	uint64_t posted;     /* places of the fifo that kernels have claimed */
	uint64_t taken;	     /* how many of them the host had taken at some kernel's last look */
	uint64_t lost;	     /* not 0: the code of a post that failed; until a quiet tells it */
	uint64_t cells;	     /* of the fifo's: a bit each that is in use */
	uint64_t late; /* of these: those that nobody awaits, and the host may still write to */
	uint64_t reserved[1];
	uint64_t recording; /* 1: a wait of this rank is filling the record */
};

/* A registered buffer for kernels, by value. */
struct spmt_mem_view {
	uint32_t size, abi;
	int32_t pe, npes;
	const struct spmtd_mem_peer *peers; /* npes of them */
	uint64_t reserved[4];
#if !defined(SPMT_NEAR)
	const uint64_t
		*far; /* not NULL: some parts have no address; where each begins, for posts */
#endif
};
struct spmtd_mem_peer {
	uint64_t base, size;
};

/* A channel to one peer, by value (channel.h). */
struct spmt_channel {
	uint32_t size, abi; /* size: set by the caller of spmt_channel_get */
	int32_t pe, peer;
	uint64_t local, local_size;   /* this rank's buffer */
	uint64_t remote, remote_size; /* the peer's, as seen from here */
	uint64_t incoming;	      /* this rank's own copy of what `remote` is at the peer */
	uint64_t arrived;	      /* how often the peer has signalled; written by the peer */
	uint64_t
		expected; /* how often this rank has waited; device memory, so that graphs replay */
	uint64_t there;	  /* the peer's `arrived` */
	uint64_t reserved[4];
};

/* A port to one peer, by value (port.h). */
struct spmt_port {
	uint32_t size, abi; /* size: set by the caller of spmt_port_get */
	int32_t pe, peer;
	uint64_t fifo; /* address of a struct spmtd_fifo */
	uint32_t index, unused;
	uint64_t local_size, remote_size; /* of this rank's buffer, and of the peer's */
	uint64_t arrived, expected;	  /* as a channel's */
	uint64_t local, incoming;	  /* likewise */
	uint64_t incoming_size;
	uint64_t reserved[1];
};

/*
 * What a kernel asks of the host, 32 bytes. `head` has the kind in bits 1 to 7, the peer in bits 8 to 31 and an argument in bits 32 to
 * 63; bit 0 says that the rest is there: it is 1 on the first way round the ring, 0 on the second, and so on. `head` is stored last.
 */
struct spmtd_post {
	uint64_t head;
	uint64_t to; /* offset in the peer's memory; of a port, in its buffer */
	uint64_t
		from; /* address of the local side; of a port, an offset in its buffer; or a value */
	uint64_t size; /* bytes */
};
enum spmtd_post_kind {
	SPMTD_POST_PORT = 64, /* with the following six, and the port's index as the argument */
	SPMTD_POST_PUT = 1,
	SPMTD_POST_SIGNAL = 2,
	SPMTD_POST_FLUSH = 4,
	SPMTD_POST_PACKETS = 8, /* a put of packets: each aligned 8 bytes arrive at once */
	SPMTD_POST_CAME = 16, /* a put of what has come from the peer: `from` is an offset there */
	SPMTD_POST_PAIRS = 32 /* of packets of 16 bytes: offsets are multiples of that */
};
/* To a peer that has no address. `to` is an offset in its heap, or, with SPMTD_FAR_MEM, of a registered buffer's byte as the buffer's view
   has it; `from` an address or a value. */
enum spmtd_far_kind {
	SPMTD_FAR_HEAP = 0,
	SPMTD_FAR_MEM = 32,
	SPMTD_FAR_PUT = 1, /* src may be written again once it is taken */
	SPMTD_FAR_PUT_NBI, /* or once a later quiet is */
	SPMTD_FAR_GET,	   /* likewise */
	SPMTD_FAR_GET_NBI,
	SPMTD_FAR_VALUE,  /* a put of `size` bytes, 1, 2, 4 or 8, that are `from` itself */
	SPMTD_FAR_FETCH,  /* a get of as many into a cell, the argument */
	SPMTD_FAR_SIGNAL, /* the value `from`, with a signal op as the argument */
	SPMTD_FAR_ATOMIC, /* operand `from`, compare `size`; the argument: op, bytes << 8, 1 + cell << 16 */
	SPMTD_FAR_FENCE, /* of no peer, as the next */
	SPMTD_FAR_QUIET,
	SPMTD_FAR_REFUSED, /* what does not go there: bulk copies from shared memory */
	/* of the library's collectives, to peers that have addresses: */
	SPMTD_FAR_COPY,	 /* `to` here is an address at the peer, from which `size` bytes come */
	SPMTD_FAR_COPIED /* all of these are; taken also in a broken world not before */
};
#define SPMTD_CELLS 64u
/* How kernels of a rank post. In device memory, but for the ring and the count. */
struct spmtd_fifo {
	uint64_t ring;	/* address of the places, struct spmtd_post, in the host's memory */
	uint64_t taken; /* address of how many posts the host is through with, likewise */
	uint32_t shift; /* there are 1 << shift places */
	int32_t pe;
	struct spmtd_own *own;
	const uint32_t *stop; /* this and the rest: as in struct spmt_view */
	struct spmtd_record *record;
	const struct spmtd_host *host;
	uint64_t
		cells; /* address of SPMTD_CELLS words that the host writes what was asked for into */
};

/*
 * A queue of a copy engine that kernels feed (sdma.h), to one peer; in device memory. Positions are numbers of bytes that only rise, at
 * position & (size - 1) in the ring.
 */
struct spmtd_sdma {
	uint64_t ring;	   /* address; 0: there is no queue to this peer */
	uint64_t size;	   /* of the ring: bytes, power of two */
	uint64_t most;	   /* bytes that one submission copies */
	uint64_t read;	   /* address of a position: what is before it the engine has read */
	uint64_t write;	   /* address of a position: what is before it the engine may read */
	uint64_t doorbell; /* address of the register that takes the same number after it */
	uint64_t
		completed; /* address of what the engine counts by when it has done what was submitted */
	uint64_t
		ends; /* address of a position for each unit of the ring: where what begins there ends, once it is written */
	uint32_t version;	      /* of the packets: 4 or 5 */
	uint32_t count_bits;	      /* of a copy's length */
	uint32_t unit;		      /* bytes, power of two: submissions are multiples */
	uint32_t atomics;	      /* SPMTD_SDMA_* */
	void (*rung)(uint64_t queue); /* host backend: behind the doorbell; may be NULL */
	uint64_t queue;
	uint64_t reserved[4];
	/* what kernels write */
	uint64_t claimed; /* position: what was submitted ends before it */
	uint64_t told;	  /* what the doorbell has */
	uint64_t telling; /* 1: a thread is about to ring it */
	uint64_t seen;	  /* what *read was at some thread's last look */
	uint64_t reserved2[4];
};
enum {
	SPMTD_SDMA_COUNTS =
		1, /* *completed is a position that the engine adds to; else its lower 32 bits alone are stored */
	SPMTD_SDMA_SIGNALS = 2 /* its 64-bit atomics reach the peer's memory */
};

/* A buffer of every rank of a comm, by value (switch.h). */
struct spmt_switch {
	uint32_t size, abi; /* size: set by the caller of spmt_switch_get */
	int32_t pe, npes;
	uint64_t bytes;			    /* of the smallest rank's buffer */
	uint64_t offset;		    /* of the buffer: in every heap, or in no heap 0 */
	uint64_t flat, stride;		    /* as in struct spmt_view */
	const struct spmtd_peer *peers;	    /* likewise, where stride is 0 */
	const struct spmtd_mem_peer *parts; /* of a registered buffer; else NULL */
	uint64_t multicast; /* where a switch reaches every rank's at once; 0: one by one */
	uint64_t reserved[3];
};

#endif
