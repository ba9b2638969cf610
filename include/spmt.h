/* SPDX-License-Identifier: MIT */
/*
 * libspmt: a communicator runtime for machines with many GPUs. Each GPU belongs to a rank. The ranks live
 * in one process, a thread each, or in several, on one node or on several.
 *
 * Words
 *   rank (PE)   one participant with one device; 0 .. nranks - 1
 *   world       all ranks that name one spmt_uid; a process may hold several worlds at once
 *   comm        the handle on one rank, first argument of every call; no call infers the rank from the
 *               thread or its device. spmt_init gives one for the whole world, spmt_split for a part of it;
 *               rank numbers are always those of the comm given
 *   symmetric   memory from spmt_malloc and friends: every rank has a copy at the same offset,
 *               named by its own address
 *
 * Threads
 *   Calls on different comms run at once and share no lock on the data path. Calls on one comm come
 *   from any thread, one at a time; a collective or spmt_finalize made while another thread waits in
 *   one on the same comm returns -EBUSY (with SPMT_CHECK: any call). spmt_status, spmt_abort, spmt_set_timeout, spmt_rank ..
 *   spmt_route, spmt_ptr and spmt_stats may run beside any call. No call is a cancellation point
 *   (pthreads(7)): a thread that is cancelled meanwhile ends at its next one, and none may be cancelled asynchronously; fn of spmt_run and
 *   spmt_each can be cancelled. A call takes up to 64 KiB of its thread's stack.
 *
 * Errors
 *   0 is success; a negative value is -errno or one of SPMT_ERR_*. spmt_strerror gives the kind,
 *   spmt_last_error the sentence (function, rank, argument, value, cause) of the calling thread.
 *   Outputs come last, are unwritten when a call fails, and must be given, unless a call's comment
 *   says otherwise. A failed call on a stream may have queued part of its work: for a put with signal,
 *   the data. quiet waits for that part. The library never exits, aborts, or changes
 *   signals, affinity, or the calling thread's current device; unasked, it prints to stderr only the SPMT_ variables it does not know, once per
 *   process, if SPMT_LOG is unset.
 *   -EINVAL   an argument: NULL, PE out of range, pointer or range outside the heap, unknown type,
 *             op or compare
 *   -ENOMEM   memory; -EAGAIN threads; -EMFILE descriptors
 *   -EBADF    the comm (or registered buffer) is finalized or was never one. The call reads it, so it
 *             must point to readable memory; and a pointer to a finalized comm may name the next one
 *             made
 *
 * Waiting
 *   Every wait has a deadline (spmt_attr.timeout_ms) and ends at once when the world breaks. A
 *   timed-out wait on a word leaves comm and world usable; a collective that some ranks have not reached
 *   by the deadline breaks the world: every later call reports this, until finalize. The sentence names the missing ranks after its
 *   last colon: "spmt_barrier: 2 of 8 ranks missing after 5.0 s: 3, 6". One that all reach, but that returns the failure
 *   of a rank's quiet (spmt_barrier, spmt_free, spmt_deregister), breaks nothing, though its code may be SPMT_ERR_TIMEOUT too; spmt_status tells.
 *
 * Order
 *   put and get without _nbi are complete locally on return: src may be reused, or dst has the
 *   data. fence orders puts, signals and atomics to each PE, but for those in streams of the user's, which are ordered by their streams; quiet completes everything this comm
 *   has issued, streams included; barrier is quiet and then sync. A signal is delivered after its
 *   data, also for 0 bytes. (Meanings follow OpenSHMEM 1.5 where it has the call.) A naturally
 *   aligned put or get of 1, 2, 4 or 8 bytes is one atomic access.
 *
 * Checking
 *   SPMT_CHECK=1 in the environment, on all ranks alike, makes calls check more. Each finding is an error of the call and, since
 *   it was asked for, a line on stderr ("spmt: check: "):
 *   - A range in the symmetric heap, remote side or local, that is not within one live block: -EINVAL, with the block and its
 *     number: "goes 16 bytes past the end of the block of 48 bytes (spmt_malloc no. 7)". Nothing of the call happens.
 *     spmt_free likewise says what is wrong with its pointer, and refuses a block in which a buffer is still registered.
 *   - A call made while another thread is in a call on the same comm, unless it may run beside any: -EBUSY. The first call is not
 *     harmed.
 *   - Stores that no call makes (kernels, spmt_ptr) behind a block, or to one that was freed: -EFAULT from spmt_free on all
 *     ranks, or from the spmt_finalize of the rank whose memory it is. Checked when a block is freed, when a kept freed block
 *     is returned to the heap (unless a full heap takes it), and by spmt_finalize. The call still does its work.
 *   - Whatever spmt_finalize finds still allocated or registered: only the line.
 *   On the host backend, AddressSanitizer stops a program built with it at once at such a store, if made in the process that
 *   owns the memory. Calls cost up to a microsecond more; blocks lie 64 bytes or more apart; freed ones are kept until 64
 *   others have been freed, up to an eighth of the heap; a heap takes 2 MiB more, for the red zones of the first 16,000 blocks;
 *   those of further blocks come out of the heap. A library itself built with AddressSanitizer checks without being asked, but
 *   writes no lines.
 *
 * Fork
 *   A forked child owns no rank: every call on an inherited comm fails with SPMT_ERR_FORKED and
 *   touches nothing shared; the parent goes on. The child may make worlds of its own.
 */
#ifndef SPMT_H
#define SPMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#if defined(__GNUC__) && !defined(__clang__)
/* spmt_route and spmt_stats are a struct and a function each. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#endif

#define SPMT_API __attribute__((visibility("default")))

/* The version of this header. spmt_version_number() is that of the library. */
#define SPMT_VERSION_MAJOR 0
#define SPMT_VERSION_MINOR 1
#define SPMT_VERSION_PATCH 0
#define SPMT_VERSION_NUMBER \
	(SPMT_VERSION_MAJOR * 10000 + SPMT_VERSION_MINOR * 100 + SPMT_VERSION_PATCH)

/* Codes of failures beside -errno. */
enum spmt_error {
	SPMT_ERR_TIMEOUT = -10001,     /* a deadline passed */
	SPMT_ERR_ABORTED = -10002,     /* spmt_abort was called with a code >= 0 */
	SPMT_ERR_PEER_DEAD = -10003,   /* a rank's thread or process is gone */
	SPMT_ERR_MISMATCH = -10004,    /* ranks of a collective passed different arguments or called
					  different functions */
	SPMT_ERR_FORKED = -10005,      /* the comm belongs to the parent of this process */
	SPMT_ERR_UNSUPPORTED = -10006, /* this backend, route or build cannot do it */
	SPMT_ERR_BROKEN = -10007       /* the world broke earlier */
};

/* Types of elements. */
enum spmt_type {
	SPMT_TYPE_I8,
	SPMT_TYPE_U8,
	SPMT_TYPE_I16,
	SPMT_TYPE_U16,
	SPMT_TYPE_I32,
	SPMT_TYPE_U32,
	SPMT_TYPE_I64,
	SPMT_TYPE_U64,
	SPMT_TYPE_F16,
	SPMT_TYPE_BF16,
	SPMT_TYPE_F32,
	SPMT_TYPE_F64,
	SPMT_TYPE_F8E4M3, /* 8-bit floats of the OCP specification, for collectives alone */
	SPMT_TYPE_F8E5M2
};

/* How a reduction combines elements. */
enum spmt_op {
	SPMT_OP_SUM,
	SPMT_OP_PROD,
	SPMT_OP_MIN,
	SPMT_OP_MAX,
	SPMT_OP_AND,
	SPMT_OP_OR,
	SPMT_OP_XOR,
	SPMT_OP_AVG, /* the sum, divided by the number of ranks */
	SPMT_OP_MADE =
		0x40000000 /* from here on: what spmt_op_premul_create has made; itself none */
};

/* Where a scalar is. */
enum spmt_scalar {
	SPMT_SCALAR_HOST, /* read by the call that it is given to */
	SPMT_SCALAR_DEVICE /* in memory that the rank's device can load from: read by each collective, when it runs */
};

#ifndef SPMT_SHARED_ENUMS /* spmt_device.h has them, too, and may come first */
#define SPMT_SHARED_ENUMS
/* How a wait or a test compares: variable, then value. */
enum spmt_cmp { SPMT_CMP_EQ, SPMT_CMP_NE, SPMT_CMP_GT, SPMT_CMP_GE, SPMT_CMP_LT, SPMT_CMP_LE };

/* What a signal does to its word. */
enum spmt_signal_op { SPMT_SIGNAL_SET, SPMT_SIGNAL_ADD };
#endif

/* What spmt_atomic does. */
enum spmt_amo {
	SPMT_AMO_FETCH,
	SPMT_AMO_SET,
	SPMT_AMO_SWAP,
	SPMT_AMO_COMPARE_SWAP,
	SPMT_AMO_INC,
	SPMT_AMO_ADD,
	SPMT_AMO_AND,
	SPMT_AMO_OR,
	SPMT_AMO_XOR,
	SPMT_AMO_FETCH_INC,
	SPMT_AMO_FETCH_ADD,
	SPMT_AMO_FETCH_AND,
	SPMT_AMO_FETCH_OR,
	SPMT_AMO_FETCH_XOR
};

/* What spmt_query tells. */
enum spmt_cap {
	SPMT_CAP_VMM,		  /* 1: the heap commits memory on demand */
	SPMT_CAP_IPC,		  /* 1: memory can be named to other processes */
	SPMT_CAP_GRAPH,		  /* 1: streams can be captured into graphs */
	SPMT_CAP_COPY_ENGINES,	  /* copies that run at once between two devices; 0: none */
	SPMT_CAP_MULTICAST,	  /* 1: one store reaches all ranks (spmt_switch_get) */
	SPMT_CAP_RESIDENT_BLOCKS, /* blocks that each rank may launch so that all ranks' blocks are co-resident, also where ranks share a device */
	SPMT_CAP_HOST_ACCESS,	  /* 1: the CPU may load and store through spmt_ptr */
	SPMT_CAP_STORE_THRESHOLD, /* bytes up to which a put is stores */
	SPMT_CAP_HEAP_SIZE,	  /* bytes of symmetric heap a rank */
	SPMT_CAP_BARRIERS,	  /* barrier sessions of kernels, by index (spmtd_barrier_at) */
	SPMT_CAP_CHANNELS /* channels, and ports, to each peer, by index (spmt_channel_get) */
};

/* Handles: a comm is one rank of a world or of a part of one, a mem a registered buffer. */
typedef struct spmt_comm spmt_comm;
typedef struct spmt_mem spmt_mem;

/* Names one world. Holds a secret: pass it only to the ranks. Plain bytes, may be copied and
   sent. */
typedef struct {
	unsigned char bytes[128];
} spmt_uid;

/* hipStream_t, CUstream, or a host-backend stream. NULL: the comm's own stream, complete after
   spmt_quiet. */
typedef void *spmt_stream;
#ifdef __cplusplus
#define SPMT_STREAM_(n) (reinterpret_cast<spmt_stream>(static_cast<uintptr_t>(n)))
#else
#define SPMT_STREAM_(n) ((spmt_stream)(n))
#endif
#define SPMT_STREAM_LEGACY \
	SPMT_STREAM_(1) /* the vendor's default stream (its 0), on every backend */
#define SPMT_STREAM_PER_THREAD SPMT_STREAM_(2)

/*
 * How the processes of a job share a uid, where a framework has its own way (MPI, a key-value
 * store): an all-gather. One rank of each process, the first to come, calls it once a world, on
 * its own thread, inside spmt_init, with no lock of the library held; the others of the process
 * wait. The struct and what ctx points to stay until all ranks of the process have returned.
 */
struct spmt_bootstrap {
	size_t size;		/* sizeof(struct spmt_bootstrap), as spmt_attr's */
	int process, processes; /* the number of this process in the job, and how many there are */
	/*
	 * Leaves the `size` bytes that each process passed as `mine`, by process, in `all`, which
	 * has room for processes * size; size is at most 1024 and the same everywhere. 0, or a
	 * negative code, which spmt_init then returns. It may block: the library cannot interrupt it,
	 * so this rank's deadline starts after it and the callback must limit its own time. Other
	 * ranks of the process wait for it no longer than their own deadlines. What it leaves in
	 * `all` is checked, not trusted. It may not call spmt_init with the same struct.
	 */
	int (*all_gather)(void *ctx, const void *mine, size_t size, void *all);
	void *ctx;
};

/*
 * Uids. Ranks whose uid is NULL are spread over the processes of a job, described by attr.bootstrap, or
 * else by SPMT_UID and SPMT_PROCESS, or the launcher (PMIx 3 or later: `mpirun -n 4 prog`, `srun --mpi=pmix prog`). With nranks 1
 * and no bootstrap it is a world of one, launcher or not.
 *   ranks     rank and nranks 0: one rank a process, the process's number in the job is its rank.
 *             Else nranks is a multiple of the processes, k ranks each, process p has the ranks
 *             p * k .. p * k + k - 1, and each of them calls spmt_init. Anything else is -EINVAL.
 *   worlds    as many as are wanted. Every process calls spmt_init for the same worlds in the same
 *             order, including calls that fail, except those whose attr is NULL or has an invalid size; each of a process's k ranks calls once per world.
 *             Where their nranks give several k, the smallest counts, so one that passes too few leaves its process a world ahead, and so does one
 *             that with what it passes has the place of another rank;
 *             an nranks that gives no k counts as that of the process's next call that gives one.
 *   devices   device -1: k devices a process, by the order of the processes on the node, no wrap. A
 *             process that sees exactly k devices is taken to have them for itself, since launchers
 *             bind GPUs so.
 *   variables SPMT_UID is a uid as text, as `spmt-info --uid` prints it, or the path of a file with it, which is waited for until the
 *             deadline; SPMT_PROCESS says which process this is: 0/2 the first of two. They take precedence over a launcher.
 *             Both are taken as given: each process must have its own number, and the same uid. A later job may have the same uid.
 *   launcher  libpmix is loaded (SPMT_PMIX_LIB) and asked at the first such call. The process then stays
 *             its client until exit, and finalizes it there, since Open MPI could not be initialised
 *             after an earlier finalize; MPI_Init may come before or after. A process that never calls
 *             spmt_init makes the others' first call end at their deadline.
 */

/* The arguments of spmt_init. Begin with SPMT_ATTR_INIT, which by itself asks for the job's world,
   see "Uids"; with nranks 1 for a world of one. */
struct spmt_attr {
	size_t size; /* sizeof(struct spmt_attr); a larger one, of 4096 bytes at most, is accepted if the
			unknown tail is zero */
	int rank, nranks; /* 0 .. nranks - 1; 1 .. 32768; both 0: the job's */
	int device; /* ordinal within the backend; -1: this rank's position among the ranks of this
		       process, no wrap */
	const char *backend; /* "hip", "cuda", "host"; NULL: SPMT_BACKEND, else the first that has
				devices and kernels */
	size_t heap_size;    /* bytes a rank, all of them the user's, rounded up to 2 MiB; 0:
				SPMT_HEAP_SIZE or 1 GiB */
	const spmt_uid *uid; /* NULL: of the bootstrap or of the job, see "Uids"; or nranks is 1 */
	int64_t timeout_ms;  /* 0: SPMT_TIMEOUT_MS or 10,000; < 0: none (death and abort still end a
				wait) */
	const struct spmt_bootstrap *bootstrap; /* NULL: none; not asked where there is a uid */
};
#ifdef __cplusplus
#define SPMT_ATTR_INIT                                                     \
	{                                                                  \
		sizeof(struct spmt_attr), 0, 0, -1, NULL, 0, NULL, 0, NULL \
	}
#else
#define SPMT_ATTR_INIT                                         \
	{                                                      \
		.size = sizeof(struct spmt_attr), .device = -1 \
	}
#endif

/* ---- life ---------------------------------------------------------------------------------- */

/* A new world's name. Local: opens nothing; the caller need not become a rank and may exit. */
SPMT_API int spmt_uid_create(spmt_uid *uid);

/*
 * Joins the world that attr->uid names, or that "Uids" above finds, and returns when all its ranks have. nranks, heap_size and
 * backend are equal on all ranks, or every rank gets SPMT_ERR_MISMATCH and a sentence that names
 * the odd one. A rank that fails posts its failure to the world: the others return at once with the
 * same code. A failed init leaves nothing behind. -EEXIST: this rank has come already. -EHOSTUNREACH: two ranks cannot reach each other's
 * memory; the sentence says what ruled out each map, "p2p: the driver grants device 0 no
 * access to 1", say. Ranks on other nodes are found over TCP (SPMT_SOCKET_IFNAME, where the uid is made; a rank of that node takes
 * part) and reached by map rdma; without it that is -EHOSTUNREACH as well, on every rank.
 *
 * A process that dies is noticed (SPMT_ERR_PEER_DEAD) from when it is connected: the first of its ranks
 * to come connects to the process of the node that was first in this call, before anything else
 * (with a launcher or bootstrap: once that has supplied the uid); the first process is connected once
 * another connects to it. A process on another node is known once its first rank has been heard from.
 * One that dies before that is nobody's peer, and found missing at the deadline. For one that dies in the moments after, the
 * sentence names the ranks that had arrived, at least the first; for the first process, which may have
 * announced none, its number: "process 4711, which led the rendezvous, died".
 */
SPMT_API int spmt_init(const struct spmt_attr *attr, spmt_comm **comm);

/*
 * Leaves the world. Collective over it: quiet, wait until no peer can touch this rank's memory, release everything,
 * live allocations included. From then on using the comm is an error (-EBADF), also for another thread waiting for a word there. In a
 * broken world it waits for no rank, only until other threads' collectives on this comm have ended. Whatever it returns but -EBUSY,
 * the comm is gone. On a comm of spmt_split it ends that comm, not the world: moves from or to its blocks on comms that go on are to be complete before. Comms that were split from this one end with it, as if each had been
 * finalized; nobody may be in a call on them: a collective of another thread there is -EBUSY, or waited for, as on this comm.
 */
SPMT_API int spmt_finalize(spmt_comm *comm);

/*
 * Makes a comm of a part of a comm. Collective over `comm`: ranks that pass the same color
 * form one comm, numbered by key, then by rank. A rank with a negative color takes part and gets
 * NULL.
 *
 * All calls work on the new comm: it has its own rank numbers, meetings, deadline (at first the
 * parent's), counters and streams, and it may be split again. Heap and routes are the rank's: a
 * symmetric address of one comm is valid on all comms of the rank, where it names a block that
 * the peer has, too, and a store through one comm ends a wait through another. What was allocated
 * or registered on a comm is freed on it, and ends with it. The library's words for the new comm
 * lie beside those of the world, or, when there is no more room, in the heap: less than 24 KiB and
 * 6 KiB a rank, 64 KiB more on GPUs and 260 KiB more where ranks live in several processes; there and
 * on GPUs also 24 KiB and 19 KiB a rank for lanes. Where ranks live in several processes, at least 64 comms of all ranks of the world, or
 * more of fewer, may be alive at once; one more is -ENOMEM on all ranks, and the comm stays usable.
 *
 * A world that breaks breaks all comms split from it. A split comm that breaks, by a collective
 * that timed out or by spmt_abort on it, breaks alone; what was allocated on it stays taken until
 * the world ends, as peers may still write there. (On GPUs kernels of ranks in other processes
 * then end at their deadline, or with the rank's next call.) Calls on the comms of one rank may
 * run at once.
 */
#define SPMT_SPLIT_NONE (-1)
SPMT_API int spmt_split(spmt_comm *comm, int color, int key, spmt_comm **part);

/*
 * The survivors of a broken comm agree on a next world: every live rank that calls this before
 * the decision. It is decided once all others have called, died with their process, or finalized
 * the comm, or else at the first deadline of those who wait. All get the same uid, derived from
 * the old secret, and their numbers in the old order; then they finalize the broken comm and pass
 * the uid to spmt_init. A rank that comes later gets SPMT_ERR_TIMEOUT, now and for ever; a comm
 * that is whole is -EINVAL, with peers that are reached by NIC after a moment: a move may return SPMT_ERR_PEER_DEAD
 * before anybody else has heard of the death, which then breaks the comm. SPMT_ERR_BROKEN: they would agree in the memory that they share, and
 * a process has overwritten it. If a rank dies between this call and spmt_init, the others miss
 * it there: a rank that keeps the broken comm until the next world is complete can call this
 * again, and the same survivors agree on yet another world. While one thread is in it, another
 * thread's call is -EBUSY, and spmt_finalize of the comm waits for it, 5 s at most. Ranks on several
 * nodes agree through the process that led their rendezvous or, if it died, through another live
 * one; if none can: SPMT_ERR_PEER_DEAD. Nodes that no longer reach each other go on separately, as nranks shows.
 */
SPMT_API int spmt_shrink(spmt_comm *broken, spmt_uid *next, int *rank, int *nranks);

/*
 * Runs fn on a thread a rank: init, fn(comm, arg), finalize. `common` may be NULL; its rank, nranks, uid and
 * device are ignored, bootstrap too. A rank whose fn fails, that is, returns anything but 0, aborts the world with its code. Returns the
 * code of the first rank that failed, unchanged, and leaves its sentence for the caller.
 */
SPMT_API int spmt_run(int nranks, const struct spmt_attr *common,
	int (*fn)(spmt_comm *comm, void *arg), void *arg);

/* n ranks of one world from one thread. All n are initialised or none. comms[i] belongs to
   attrs[i]; make collective calls, spmt_finalize too, through spmt_each, as the first of n calls in a row
   would wait for the second. Attrs that name several worlds, or of which only some name one, are refused. uid and bootstrap NULL in
   all: a new world of these n, or, if nranks is above n, a part of the job, see "Uids". */
SPMT_API int spmt_init_all(int n, const struct spmt_attr *attrs, spmt_comm **comms);

/* fn for every comm at once, each on a thread of its own (blocking collectives work); returns
   when all have. Returns the earliest failure; a code that fn returns breaks no world here. -EINVAL, and no fn runs: a comm is
   listed twice, or is NULL, as for a rank without a part (spmt_split); one that is not live is likewise refused, with -EBADF. */
SPMT_API int spmt_each(
	int n, spmt_comm *const *comms, int (*fn)(spmt_comm *comm, void *arg), void *arg);

/* As spmt_each, but a fn that fails aborts its comm with its code, as in spmt_run, so that the others do not wait for it. */
SPMT_API int spmt_each_abort(
	int n, spmt_comm *const *comms, int (*fn)(spmt_comm *comm, void *arg), void *arg);

/* spmt_finalize of n comms at once, each on a thread of its own; returns when all have. A comm that is not live, is listed twice or is a
   part or lane of another listed one is an error, as is a lack of threads, or another thread in a collective on one (-EBUSY); then none is
   finalized. Otherwise all are gone, except one that such a thread entered at that moment, and the first failure is returned. */
SPMT_API int spmt_finalize_all(int n, spmt_comm *const *comms);

/*
 * A lane of a comm: a comm of the same ranks, with an order of its own, for programs that cannot call collectives in one order on
 * all ranks, as frameworks with several call sites. Collectives on lanes of one key match each other in the order in which
 * each rank calls them on its lane, whatever it calls elsewhere, on other lanes too.
 *
 * Local: it waits for nobody, and may run beside any call but spmt_finalize. While the lane is whole the same key gives the same comm
 * again. A lane has no lanes itself (-EINVAL). Lanes have collectives other than those with counts (_v), ops of their own
 * (spmt_op_premul_create), barriers and sync, spmt_quiet, spmt_on_complete, spmt_stream_register and _deregister, spmt_status, spmt_abort,
 * spmt_set_timeout, spmt_query, spmt_finalize and the questions who and where; other calls are SPMT_ERR_UNSUPPORTED: make them on the comm
 * that the lane belongs to. Any threads may call, even at once: their work is queued in the order of their calls.
 *
 * Stream NULL is the lane's own: a queue without a thread. Nobody waits in a collective there, and no lane holds up another: the
 * rank that comes last moves the data of all. So ranks may call two lanes in opposite order. In another stream a collective holds
 * the stream until all have come, as on any comm.
 *
 * On GPUs, and where the ranks live in several processes, a lane's stream NULL is a stream of the device, and the ranks meet in kernels:
 * addresses and flags are exchanged in the devices' memory, no call waits for a thread, and what is queued may be captured into a graph.
 * Lanes that ranks call in opposite order must use separate streams, and on GPUs their kernels must run concurrently: at most as many as the
 * driver has queues for (CUDA_DEVICE_MAX_CONNECTIONS, 8 where it is not set, 32 at most) may wait at once. Between processes,
 * buffers must lie in the heap, else -EINVAL. A world, with its parts, has room for 1024 lanes at a time (128 of its own, with several
 * processes on the host backend), a part for 32, and each broken lane still counts; beyond that, -ENOMEM. Calls that wait, such as spmt_quiet,
 * hold up those of other threads on the same rank's lane.
 *
 * A collective that not all ranks reach before the deadline of one that has, or that differs between ranks, or spmt_abort, breaks that
 * lane only. From then on no buffer of a failed collective is touched, every call on the lane reports the cause, and its key
 * names a new lane. A rank that is late, and asks for the key only then, gets the new one: a program that
 * repeats its calls under one key puts the number of the run into it. A lane breaks with its comm.
 *
 * It ends with its comm, or with spmt_finalize, which waits only for this rank's own work there, and breaks the lane if some of that runs
 * past the deadline, so that other threads' calls on it end; of a lane whose ranks meet in kernels it first waits for those calls, as long as they
 * wait. SPMT_ERR_UNSUPPORTED: the ranks live on several nodes, or kernels do not reach all peers. SPMT_ERR_TIMEOUT:
 * another process did not release the table of lanes; a working one always does.
 */
SPMT_API int spmt_lane(spmt_comm *comm, uint64_t key, spmt_comm **lane);

/*
 * Calls fn(arg, code) when all that this comm has queued in the stream is complete. code: 0, or what failed: what spmt_quiet would
 * return now; on a lane, why that is broken. What is queued in the stream behind it waits until fn has returned.
 *
 * fn returns: if it ends its thread, nobody calls those behind it, for which spmt_finalize waits. It is called once, on a thread of the rank's own, also when the world breaks: at the latest before spmt_finalize returns, which
 * waits for it, whether the stream has come to it or not. It may call the library, on any comm, one call at a time as always; this call
 * no longer uses the comm by then. On a lane whose ranks meet in kernels its calls on that very lane wait as long as other threads'
 * calls wait there. But what waits for this very function (quiet of the comm; fence, where that is in stream NULL) ends at its deadline, and
 * spmt_finalize of any comm of the rank is -EBUSY. Functions of one rank are called one after the other. If
 * this call fails, nothing is called.
 */
SPMT_API int spmt_on_complete(
	spmt_comm *comm, spmt_stream stream, void (*fn)(void *arg, int code), void *arg);

/* Deadline of this rank's waits from here on, milliseconds; 0: the default again; < 0: none. Local. It also applies to a wait for words under
   way in another thread, counted from its start; to no other wait. */
SPMT_API int spmt_set_timeout(spmt_comm *comm, int64_t timeout_ms);

/* Breaks the world at once: every wait in it, kernels included, ends. code < 0 is what the
   others get; >= 0 gives them SPMT_ERR_ABORTED. Any thread, at any time, but not a signal handler, as it takes locks. The first abort counts. */
SPMT_API int spmt_abort(spmt_comm *comm, int code);

/* 0, or why the world is broken. Never blocks. SPMT_ERR_MISMATCH, while the world is whole, from
   when calls in a stream differed until quiet reports it. After 0, spmt_last_error has the
   sentence of a kernel's wait that ended at its deadline, until quiet reports it. */
SPMT_API int spmt_status(spmt_comm *comm);

/* The kind of a code, in words; never NULL. */
SPMT_API const char *spmt_strerror(int code);
/* This thread's last failure in one sentence, "" if there was none. Valid until its next failure. */
SPMT_API const char *spmt_last_error(void);
/* The version of the library that is loaded: "0.1.0", and as SPMT_VERSION_NUMBER. */
SPMT_API const char *spmt_version(void);
SPMT_API int spmt_version_number(void);
/* What the comm's device, backend and heap can do, one question a call. */
SPMT_API int spmt_query(spmt_comm *comm, enum spmt_cap cap, int64_t *value);

/* ---- who ----------------------------------------------------------------------------------- */

/* Who a rank is: its number, the number of ranks, its device, its backend. Never blocks. */
SPMT_API int spmt_rank(const spmt_comm *comm);	 /* or a negative code */
SPMT_API int spmt_nranks(const spmt_comm *comm); /* or a negative code */
SPMT_API int spmt_device(
	const spmt_comm *comm); /* ordinal within the backend, or a negative code */
SPMT_API const char *spmt_backend(const spmt_comm *comm); /* or NULL */

/* A rank of this process by number, or by device (the lowest rank on it); NULL if there is none, or not all ranks of its world
   have come to spmt_init yet. Takes no lock. */
SPMT_API spmt_comm *spmt_comm_by_rank(const spmt_uid *uid, int rank);
SPMT_API spmt_comm *spmt_comm_by_device(const spmt_uid *uid, int device);

/* How the comm's rank reaches pe's memory, and why so. */
struct spmt_route {
	size_t size; /* set by the caller: sizeof(struct spmt_route) */
	int pe;
	char map[16];	    /* "self", "p2p", "ipc", "rdma" */
	char movers[32];    /* "store,sdma", in the order of use */
	uint64_t threshold; /* bytes up to which the first mover is used */
	char reason[256];   /* why this map and not an earlier one */
	int process;	    /* pe's, numbered from 0 alike on all ranks */
	int device;	    /* pe's, an ordinal of its process */
};
SPMT_API int spmt_route(spmt_comm *comm, int pe, struct spmt_route *route);

/* ---- guard --------------------------------------------------------------------------------- */

/* Private. */
struct spmt_guard {
	const void *backend;
	void *context;
	int ordinal, error;
};
/* Binds the comm's device to this thread; an invalid comm binds nothing. leave puts the thread's
   own back; idempotent. */
SPMT_API void spmt_guard_enter(spmt_comm *comm, struct spmt_guard *guard);
SPMT_API void spmt_guard_leave(struct spmt_guard *guard);

#define SPMT_GUARD_JOIN_(a, b) a##b
#define SPMT_GUARD_AS_(comm, name)                                         \
	__attribute__((cleanup(spmt_guard_leave))) struct spmt_guard name; \
	spmt_guard_enter((comm), &name)
#define SPMT_GUARD_NAMED_(comm, n) SPMT_GUARD_AS_(comm, SPMT_GUARD_JOIN_(spmt_guard_at_, n))
/* From here to the end of the scope this thread's current device is the comm's. Nests. */
#define SPMT_GUARD(comm) SPMT_GUARD_NAMED_(comm, __COUNTER__)

/* ---- devices without a comm ---------------------------------------------------------------- */

/* The number of devices of a backend. backend NULL: the one that spmt_init would take. Where a backend has no driver, or its driver fails
   or finds no device, that is an error, -ENODEV or what the driver said; "host" may have 0 (SPMT_HOST_DEVICES). */
SPMT_API int spmt_device_count(const char *backend, int *count);

/* ---- symmetric memory ---------------------------------------------------------------------- */

/*
 * Blocks at the same offset on every rank. Collective: all ranks make the same calls, in the same order. A different size, alignment, order or function on some rank
 * is SPMT_ERR_MISMATCH on every rank, which names the ranks that differ; the heap stays usable. Size
 * 0 gives a block of its own. malloc does not clear. alignment: a power of two up to 8 MiB; holds
 * for the address on every rank.
 */
SPMT_API int spmt_malloc(spmt_comm *comm, size_t size, void **ptr);
SPMT_API int spmt_calloc(spmt_comm *comm, size_t count, size_t size, void **ptr);
SPMT_API int spmt_aligned_alloc(spmt_comm *comm, size_t alignment, size_t size, void **ptr);
/* Frees a block. Collective, as malloc is. NULL is a no-op, on all ranks alike. No peer can touch the block when free returns, by calls on this comm: if the block was used on other comms and lanes of the same ranks,
   these are to be quiet on all ranks before. -EFAULT: SPMT_CHECK has found a write where there should be none; the block is freed. */
SPMT_API int spmt_free(spmt_comm *comm, void *ptr);

/* The address at which pe's copy of `sym` can be loaded and stored, or NULL: bad argument, or
   not reachable that way. Local. */
SPMT_API void *spmt_ptr(spmt_comm *comm, const void *sym, int pe);

/*
 * Makes any buffer of this rank (a framework's tensor) usable by the others. Both are collective, in the same order on all ranks; sizes
 * and addresses may differ between ranks; size 0 with NULL: no buffer. Within a process nothing is copied. The buffer
 * stays the caller's and must outlive deregister. Ranks of other processes map the allocation
 * that holds it: the symmetric heap, memory of the vendor's allocator (cuMemAlloc, hipMalloc;
 * cuMemCreate if it may be exported as a descriptor), device memory of the host backend (what
 * travels by descriptor: on the world's comm alone). They cannot reach other memory: their calls
 * on it return SPMT_ERR_UNSUPPORTED with the reason, and spmt_mem_ptr is NULL. A rank out of memory or descriptors for it is no such
 * reason: the call fails on all ranks, and can be made again.
 */
SPMT_API int spmt_register(spmt_comm *comm, void *buf, size_t size, spmt_mem **mem);
SPMT_API int spmt_deregister(spmt_comm *comm, spmt_mem *mem);
/*
 * As spmt_register, by this rank alone, under a key of its own choice: local, waits for nobody, so that a framework's
 * handler may call it. -EEXIST: this rank has a buffer under the key on this comm; each comm has keys of its own. Ranks of the process look it up by rank and key, and
 * get a handle of their own, in which other ranks have 0 bytes; -ENOENT: there is none now. SPMT_ERR_UNSUPPORTED: the rank is in
 * another process, or no map loads from its memory.
 *
 * spmt_deregister ends these handles, too, and is local then. A rank deregisters its buffer once its peers' operations on it are complete;
 * from then on their calls with handles of it are -EBADF, and the key is free.
 */
SPMT_API int spmt_register_local(
	spmt_comm *comm, uint64_t key, void *buf, size_t size, spmt_mem **mem);
SPMT_API int spmt_mem_lookup(spmt_comm *comm, int pe, uint64_t key, spmt_mem **mem);
/* What a handle is for: the address and size of pe's buffer, and puts and gets by offset, which are as those of symmetric memory below. Local. */
SPMT_API void *spmt_mem_ptr(spmt_mem *mem, int pe);   /* NULL where it cannot be loaded from */
SPMT_API size_t spmt_mem_size(spmt_mem *mem, int pe); /* 0 for a bad argument */
SPMT_API int spmt_mem_put(
	spmt_comm *comm, spmt_mem *dst, size_t dst_off, const void *src, size_t size, int pe);
SPMT_API int spmt_mem_put_nbi(
	spmt_comm *comm, spmt_mem *dst, size_t dst_off, const void *src, size_t size, int pe);
SPMT_API int spmt_mem_put_on_stream(spmt_comm *comm, spmt_mem *dst, size_t dst_off, const void *src,
	size_t size, int pe, spmt_stream stream);
SPMT_API int spmt_mem_get(
	spmt_comm *comm, void *dst, spmt_mem *src, size_t src_off, size_t size, int pe);
SPMT_API int spmt_mem_get_nbi(
	spmt_comm *comm, void *dst, spmt_mem *src, size_t src_off, size_t size, int pe);
SPMT_API int spmt_mem_get_on_stream(spmt_comm *comm, void *dst, spmt_mem *src, size_t src_off,
	size_t size, int pe, spmt_stream stream);
struct spmt_mem_view; /* spmt_device.h */
/* What kernels need to use a registered buffer; the caller sets view->size. Valid until
   deregister. Where spmt_view_get gives a view through which the host serves kernels, so does this; it is refused likewise. */
SPMT_API int spmt_mem_view_get(spmt_comm *comm, spmt_mem *mem, struct spmt_mem_view *view);

/* Between ordinary host memory and this rank's own symmetric memory. Local, complete on return. */
SPMT_API int spmt_copy_in(spmt_comm *comm, void *dst_sym, const void *host_src, size_t size);
SPMT_API int spmt_copy_out(spmt_comm *comm, void *host_dst, const void *src_sym, size_t size);

/* ---- RMA, in bytes ------------------------------------------------------------------------- */

/*
 * Puts bytes into a peer's memory, or gets them from it.
 *
 * The remote side (dst of put, src of get, sig, target of an atomic) is this rank's symmetric
 * address of the block meant on pe; the local side is any memory the rank's device can reach (on
 * host: any memory of the process). Size 0 is a no-op with any pointer, but a signal is still
 * delivered. To self src and dst may overlap, like memmove, but not of iput and iget. _nbi: local completion at spmt_quiet;
 * above the store threshold it returns before the bytes have moved. _on_stream: in stream order;
 * does not block the host. A stream that is being captured (SPMT_CAP_GRAPH) records them, for each
 * launch of the graph; the graph does not wait for work in other streams; that is up to whoever
 * launches it. Once an operation over the network has failed in a stream, none to that PE in any stream of the comm happens until
 * spmt_quiet or spmt_quiet_on_stream has told of it. Operations over the network, signals included, cannot be captured:
 * SPMT_ERR_UNSUPPORTED, and the capture goes on.
 */
SPMT_API int spmt_put(spmt_comm *comm, void *dst, const void *src, size_t size, int pe);
SPMT_API int spmt_put_nbi(spmt_comm *comm, void *dst, const void *src, size_t size, int pe);
SPMT_API int spmt_put_on_stream(
	spmt_comm *comm, void *dst, const void *src, size_t size, int pe, spmt_stream stream);
SPMT_API int spmt_get(spmt_comm *comm, void *dst, const void *src, size_t size, int pe);
SPMT_API int spmt_get_nbi(spmt_comm *comm, void *dst, const void *src, size_t size, int pe);
SPMT_API int spmt_get_on_stream(
	spmt_comm *comm, void *dst, const void *src, size_t size, int pe, spmt_stream stream);

/* Data, then the signal, in this order at pe. One call, so that no fence is needed. */
SPMT_API int spmt_put_signal(spmt_comm *comm, void *dst, const void *src, size_t size,
	uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe);
SPMT_API int spmt_put_signal_nbi(spmt_comm *comm, void *dst, const void *src, size_t size,
	uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe);
SPMT_API int spmt_put_signal_on_stream(spmt_comm *comm, void *dst, const void *src, size_t size,
	uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe, spmt_stream stream);

/* `count` elements of elem_size bytes; strides in elements, at least 1. Complete locally on
   return. */
SPMT_API int spmt_iput(spmt_comm *comm, void *dst, const void *src, ptrdiff_t dst_stride,
	ptrdiff_t src_stride, size_t count, size_t elem_size, int pe);
SPMT_API int spmt_iget(spmt_comm *comm, void *dst, const void *src, ptrdiff_t dst_stride,
	ptrdiff_t src_stride, size_t count, size_t elem_size, int pe);

/* ---- signals, waits, atomics --------------------------------------------------------------- */

/* Sets the signal word of pe to val, or adds val to it: one atomic store or add. */
SPMT_API int spmt_signal(
	spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe);
SPMT_API int spmt_signal_on_stream(spmt_comm *comm, uint64_t *sig, uint64_t val,
	enum spmt_signal_op op, int pe, spmt_stream stream);
SPMT_API int spmt_signal_fetch(
	spmt_comm *comm, const uint64_t *sig, uint64_t *val); /* of this rank's own copy */
/* Waits until *sig (this rank's own copy) compares true with val. `seen`, the value that ended the
   wait, may be NULL. */
SPMT_API int spmt_signal_wait(
	spmt_comm *comm, const uint64_t *sig, enum spmt_cmp cmp, uint64_t val, uint64_t *seen);
SPMT_API int spmt_signal_wait_on_stream(
	spmt_comm *comm, const uint64_t *sig, enum spmt_cmp cmp, uint64_t val, spmt_stream stream);

/*
 * Waits for this rank's own symmetric variables; plain compares of the type (8 to 64 bit integers,
 * f32, f64). A wait ends at once after a store by a put, signal, atomic or copy-in, in streams too, or by a
 * collective of a comm; within 5 ms after any other store, as those by gets and by collectives of lanes are. `status`, may be NULL: elements with a non-zero entry are left out. Nothing left in: 0
 * with *index SIZE_MAX (any), *found 0 (some), 0 (all). Where several hold, _any takes one at random,
 * so that each has its turn, and _some writes rising indices.
 */
SPMT_API int spmt_wait_until(
	spmt_comm *comm, enum spmt_type type, const void *ivar, enum spmt_cmp cmp, const void *val);
SPMT_API int spmt_wait_until_any(spmt_comm *comm, enum spmt_type type, const void *ivars,
	size_t count, const int *status, enum spmt_cmp cmp, const void *val, size_t *index);
SPMT_API int spmt_wait_until_some(spmt_comm *comm, enum spmt_type type, const void *ivars,
	size_t count, const int *status, enum spmt_cmp cmp, const void *val, size_t *indices,
	size_t *found);
SPMT_API int spmt_wait_until_all(spmt_comm *comm, enum spmt_type type, const void *ivars,
	size_t count, const int *status, enum spmt_cmp cmp, const void *val);
/* Tests once the condition that spmt_wait_until, _any, _some and _all wait for. */
SPMT_API int spmt_test(spmt_comm *comm, enum spmt_type type, const void *ivar, enum spmt_cmp cmp,
	const void *val, int *result);
SPMT_API int spmt_test_any(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val,
	size_t *index); /* SIZE_MAX: none holds, or none is left in */
SPMT_API int spmt_test_some(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val, size_t *indices, size_t *found);
SPMT_API int spmt_test_all(spmt_comm *comm, enum spmt_type type, const void *ivars, size_t count,
	const int *status, enum spmt_cmp cmp, const void *val,
	int *result); /* nothing left in: 1 */

/*
 * One atomic operation on pe's copy of target, naturally aligned. i32 u32 i64 u64: all; f32 f64:
 * FETCH, SET, SWAP. `operand` is unused by FETCH, INC, FETCH_INC, `compare` by all but
 * COMPARE_SWAP, `fetched` by SET and the forms without fetch; unused ones may be NULL. Atomic among
 * spmt_atomic, spmt_signal and their device forms; not with C atomics through spmt_ptr.
 */
SPMT_API int spmt_atomic(spmt_comm *comm, enum spmt_amo amo, enum spmt_type type, void *target,
	const void *operand, const void *compare, void *fetched, int pe);

/* Orders puts, signals and atomics to each PE: those issued before it happen before those issued after. It waits for the comm's own stream
   (NULL), with whatever a user has put there, and not for others: what was queued in a stream of the user's is in order of that stream alone;
   spmt_quiet waits for it. */
SPMT_API int spmt_fence(spmt_comm *comm);
/* Completes everything that this comm has issued. Returns the first failure of what was issued since the last quiet, at queueing or
   at running, in any stream, waits of this rank's kernels included. The next quiet reports what was still
   under way when this one ended at its deadline. Kernels keep the deadline, and get an eighth of it and 0.4 s more to report what they waited for.
   In a broken world it fails, but first lets this rank's queued work end: copies in any case; for work behind a user kernel it waits half a second,
   and work that has not begun by then never begins. No buffer is read or written any more, whatever it returns; but
   GPUs' own copies, of puts and gets on streams and by copy engines, do not check for this: if a kernel delays them longer, synchronize its stream.
   Neither this nor a barrier covers graphs that the user launches: synchronize the launch stream before reading what the graph writes,
   or freeing or deregistering what it uses. */
SPMT_API int spmt_quiet(spmt_comm *comm);
/* Work queued on stream after this runs when everything issued on the comm before it is
   complete; in a stream that is being captured, what is in the graph. */
SPMT_API int spmt_quiet_on_stream(spmt_comm *comm, spmt_stream stream);

/*
 * For streams in which a comm calls often. The library records an event after each call in a stream, since the stream may be destroyed at
 * once, at a tenth of a small call's cost. The caller of spmt_stream_register keeps the stream until spmt_stream_deregister, or
 * until this comm is finalized, and gives up one thing: whoever waits for this comm's calls in it (spmt_quiet, a barrier, a collective of the
 * comm in another stream, spmt_quiet_on_stream) waits for all that the stream holds by then, the user's own kernels too. While a
 * registered stream is being captured, calls that wait for its earlier work return -EBUSY, spmt_finalize too, and may be repeated after the capture.
 *
 * Local, of this comm alone, lanes included. Deregister a stream before you destroy it; its work may go on. -EEXIST: the comm has
 * it. -EINVAL: it has not (deregister), or the stream is NULL or a default one (SPMT_STREAM_LEGACY, _PER_THREAD). -EBUSY: it is being
 * captured (deregister: and holds work of this comm from before). Deregister works in a broken world as well; where it fails the stream stays registered. If a stream of
 * the host backend was destroyed first, every call that would wait for its work is -EINVAL, spmt_finalize too, which still releases everything
 * if that work ends within its wait, a second at most.
 */
SPMT_API int spmt_stream_register(spmt_comm *comm, spmt_stream stream);
SPMT_API int spmt_stream_deregister(spmt_comm *comm, spmt_stream stream);

/* ---- collectives over the world ------------------------------------------------------------ */

/* Waits until all ranks of the comm have called; spmt_barrier completes what each has issued before, as quiet does. If quiet fails on a rank,
   because its streams still run at its deadline or a wait there ended early, all ranks get that code and sentence, and the world
   stays whole; but not if the others' deadlines pass while they wait for that rank. */
SPMT_API int spmt_barrier(spmt_comm *comm);
SPMT_API int spmt_sync(spmt_comm *comm); /* a barrier without the quiet */
/* In a graph it completes what is there; with SPMT_SDMA=queues, what kernels have submitted to copy engines only if spmt_view_get
   came before the capture. */
SPMT_API int spmt_barrier_on_stream(spmt_comm *comm, spmt_stream stream);

/*
 * Collectives in stream order, asynchronous to the host. Buffers are any addresses of the rank's
 * device that are aligned to the type, symmetric or not. dst and src may not overlap, except in
 * place: dst == src for all_reduce, reduce, broadcast and all_to_all; src the rank's own block of dst
 * for all_gather, gather and all_gather_v; dst the rank's own block of src for reduce_scatter and scatter;
 * all_to_all in place on all ranks or on none. All ranks pass the same count, type, op and
 * root, and call in the same order. An argument that is wrong on one rank alone is -EINVAL there
 * at once; the others miss that rank at their deadline. The next quiet reports a difference
 * between ranks to all of them as SPMT_ERR_MISMATCH; nothing was moved, and the next call is
 * fine. All ranks capture a call into a graph, or none: moved by copy engines, captured and uncaptured calls never meet.
 *
 * For reduce, gather, scatter, all_to_all in place, all_gather_v and all_to_all_v a difference breaks the world, as
 * a missing rank does: quiet and status return SPMT_ERR_MISMATCH on every rank, the next call
 * SPMT_ERR_BROKEN. For the last two, other pairs may have received their data by then. Where copy engines move one of the calls (row
 * engine, on GPUs what is 128 MiB or more) a difference breaks the world as well.
 *
 * To block, pass the stream NULL and then call spmt_quiet: on return dst is written, src is free, and any failure
 * is returned. There are no other blocking forms.
 *
 * A collective that fails in its stream, because a rank is missing at the deadline or the world
 * breaks, breaks the world at that moment: status, quiet and the next call report it on every rank,
 * with the missing ranks. Work queued behind it, puts and signals included, does not run, nor does a
 * graph that is launched again; no rank takes part in it later. dst is undefined.
 *
 * Nobody reads or writes a rank's buffers before that rank has called; after quiet (or the
 * stream's end of the work) no peer reads src. Results are bitwise equal on all ranks and from
 * run to run: elements are combined in the order of ranks, unless SPMT_COLL names a plan, which has an order of
 * its own. Types: all of spmt_type. Sums of f16, bf16 and f8 are made in f32 and rounded once, to nearest even.
 *
 * AND, OR, XOR: integers only. AVG: for integers the exact mean, with no overflow of sums, rounded toward zero; for floats the sum,
 * divided once by the number of ranks, in f32 (f64: in f64). MIN and MAX: a NaN on any rank gives NaN, -0 is below +0.
 *
 * SPMT_TYPE_F8E4M3 and SPMT_TYPE_F8E5M2 are the formats of the OCP 8-bit Floating Point Specification, revision 1.0, E4M3 being
 * float8_e4m3fn of ml_dtypes: it has no infinity, and 0x7f and 0xff are NaN. A result too large for E5M2 becomes infinity; for E4M3,
 * one above 464, which would round beyond 448, becomes NaN, as infinities do. Nothing saturates. (The specification leaves the choice;
 * ml_dtypes does the same.) A NaN result is 0x7f of E4M3 and 0x7e of E5M2.
 */
SPMT_API int spmt_broadcast(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, int root,
	spmt_stream stream); /* dst is written on the root too; src is unread on the others */
SPMT_API int spmt_all_gather(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, spmt_stream stream); /* count: elements a rank gives */
SPMT_API int spmt_all_to_all(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, spmt_stream stream); /* count: elements a pair */
SPMT_API int spmt_reduce_scatter(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, enum spmt_op op,
	spmt_stream
		stream); /* count: elements of one rank's result; src holds nranks times as many */
SPMT_API int spmt_all_reduce(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, enum spmt_op op, spmt_stream stream);
/*
 * Makes an op for all_reduce, reduce_scatter and reduce: the sum of what each rank gives, multiplied by that rank's *scalar first. The
 * scalar has the type `type`, as must the buffers, and may differ between ranks; but all ranks must pass such an op. Integers
 * wrap; floats are multiplied, then added in the order of ranks, f16, bf16 and f8 in f32, rounded once at the end.
 *
 * Local: no other rank takes part. The op belongs to this comm alone: other ranks, comms split from it and its lanes make their own;
 * passing another comm's op is -EINVAL, as is one that was destroyed or belongs to an earlier world. A comm has up to 256 at a time; one more
 * is -ENOSPC. They are for the collectives above: plans take none. A SPMT_SCALAR_DEVICE scalar stays where it is until the last collective
 * with its op is complete, is aligned to its type, and is read anew by every launch of a graph.
 */
SPMT_API int spmt_op_premul_create(spmt_comm *comm, enum spmt_type type, const void *scalar,
	enum spmt_scalar where, enum spmt_op *op);
/* Forgets such an op. Collectives that were called with it, also in a graph, are not affected: it may follow them at once. What is left is
   forgotten with the comm. */
SPMT_API int spmt_op_destroy(spmt_comm *comm, enum spmt_op op);
/* Sends each rank's data to the rank that a table names; else as the collectives above. to[nranks], equal on all ranks and copied:
   to[i] is rank i's target, -1 for none; no target twice; dst is untouched where nothing arrives, and has room all the same, as src has. */
SPMT_API int spmt_permute(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, const int *to, spmt_stream stream);
/* To or from one rank, the root; count is per rank, so at the root dst of gather and src of scatter hold nranks times as many. On other
   ranks dst of reduce and gather is untouched, src of scatter unread, and each may be NULL. */
SPMT_API int spmt_reduce(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, enum spmt_op op, int root, spmt_stream stream);
SPMT_API int spmt_gather(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, int root, spmt_stream stream);
SPMT_API int spmt_scatter(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, int root, spmt_stream stream);
/* Gathers counts[i] elements of each rank i at dst + offsets[i], both in elements. src has counts[rank] of them. counts is equal on
   all ranks, offsets need not be; both have nranks entries and are copied. Where a count is 0 nothing is touched and its offset means
   nothing; a buffer of which nothing is touched may be NULL. What comes from different ranks may not overlap in dst. */
SPMT_API int spmt_all_gather_v(spmt_comm *comm, void *dst, const size_t *counts,
	const size_t *offsets, const void *src, enum spmt_type type, spmt_stream stream);
/* Sends src_counts[i] elements at src + src_offsets[i] to each rank i, and puts dst_counts[i] that come from it at
   dst + dst_offsets[i], all in elements; else as spmt_all_gather_v. What one rank sends another is what that one expects:
   src_counts[j] of rank i is dst_counts[i] of rank j. */
SPMT_API int spmt_all_to_all_v(spmt_comm *comm, void *dst, const size_t *dst_counts,
	const size_t *dst_offsets, const void *src, const size_t *src_counts,
	const size_t *src_offsets, enum spmt_type type, spmt_stream stream);

/* ---- kernels ------------------------------------------------------------------------------- */

struct spmt_view; /* spmt_device.h */
/* What kernels need to act as this rank, by value. The caller sets view->size; no more is
   written. Valid until finalize. Where some rank of the comm reaches another by a map that kernels cannot load from, as on another
   node, the host serves kernels' requests there (spmt_device.h, "Peers without an address"); with a view->size of an earlier header
   that is SPMT_ERR_UNSUPPORTED. */
SPMT_API int spmt_view_get(spmt_comm *comm, struct spmt_view *view);

/*
 * A channel of kernels to one peer: two buffers, and a counter of signals for each direction that only rises.
 *
 * Local: nothing is exchanged and nobody waits, in whatever process the peer lives. The words of all channels exist from init on:
 * SPMT_CAP_CHANNELS channels to each peer, the rank itself included, chosen by an index that both ranks pass; so a channel is never
 * destroyed either. Getting a channel again, perhaps with other buffers, continues its counts: signals not yet waited for are still there.
 */
struct spmt_channel_attr {
	size_t size; /* sizeof(struct spmt_channel_attr), as spmt_attr's */
	int peer;    /* a rank of the comm */
	int index;   /* 0 .. SPMT_CAP_CHANNELS - 1 */
	/* The peer's buffer, as this rank's symmetric address, and its bytes; or, with remote NULL and remote_size 0, a
	   registered buffer. Neither: signals alone. */
	const void *remote;
	size_t remote_size;
	spmt_mem *mem;
	/* This rank's buffer: any memory that its device can reach. NULL and 0: its own copy, or part, of the remote one. */
	void *local;
	size_t local_size;
};
struct spmt_channel; /* spmt_device.h */
/* What kernels need to use a channel, by value. The caller sets channel->size; no more is written. Valid until finalize, until the
   memory is freed, and until deregister. SPMT_ERR_UNSUPPORTED where kernels of some rank of the comm do not load from another's memory, and
   where a registered buffer cannot be loaded from. */
SPMT_API int spmt_channel_get(
	spmt_comm *comm, const struct spmt_channel_attr *attr, struct spmt_channel *channel);

struct spmt_port; /* spmt_device.h */
/*
 * A port of kernels to one peer: two buffers and a counter of signals, as a channel's, but what is put and signalled goes through the
 * host: a thread of the library, one a process, takes what kernels post and has copy engines, NICs or the CPU do it. So a kernel spends
 * one thread on a transfer of any size. `attr` is a channel's, and so are the buffers; SPMT_CAP_CHANNELS ports to each peer have words of
 * their own. A port obtained again has the new buffers from the next post on, in all copies of it, and goes on counting; but kernels pack and
 * unpack packets in the buffers that their copy names, so for packets they need a newer copy.
 *
 * Local. The first port of a comm creates its rank's ring, and the first of the process the thread. A post that fails, including one whose
 * offsets do not fit, breaks the comm: flush and waits end, and spmt_quiet and spmt_status report it. spmt_quiet completes all posts by kernels
 * that have ended. Valid as a channel is; the peer may be on another node.
 */
SPMT_API int spmt_port_get(
	spmt_comm *comm, const struct spmt_channel_attr *attr, struct spmt_port *port);

struct spmt_switch; /* spmt_device.h */
/* What kernels need to reduce from, and store to, one buffer of every rank of the comm, by value: `bytes` of symmetric memory at sym;
   or, with sym NULL and bytes 0, a registered buffer, of which every rank has a part. Local. The caller sets sw->size; no more is
   written. Valid, and refused, as a channel is. With SPMT_MULTICAST=1 kernels use the switch's multicast, or the call is refused: SPMT_ERR_UNSUPPORTED
   for registered buffers, for ranks that are in other processes or share a device, for heaps that are not committed on demand and for
   devices or drivers without it; other refusals return the driver's code. */
SPMT_API int spmt_switch_get(
	spmt_comm *comm, const void *sym, size_t bytes, spmt_mem *mem, struct spmt_switch *sw);

/* ---- plans --------------------------------------------------------------------------------- */

/*
 * Plans: a collective written once for all ranks, as a list of operations for each block of threads of each rank, checked before it
 * runs, and run by one kernel a rank. spmt_plan.h has calls for most kinds of operations; relaxed signals, packets sent on, slices and several places are added by
 * spmt_plan_add. A plan is built, read, written, checked and
 * simulated without a comm, in any thread that has it to itself. A plan to which nobody adds may be
 * looked at, checked and begun by any number of threads.
 *
 * Buffers. Each rank has an input, an output and a scratch buffer, cut into chunks of one size: the input's bytes divided by input_chunks
 * or, if there is none, the output's by output_chunks; with neither, a run's count is one chunk's. Packets have places of their own
 * beside those of scratch, by the same indices. In place, input and output are one buffer: rank r's input starts at chunk r *
 * input_chunks of the output in an "allgather", its output at chunk r * output_chunks of the input in a "reducescatter", otherwise
 * they start together.
 *
 * Order. The operations of a block are done one after the other. Those of two blocks, of one rank or two, are ordered by signals and
 * waits, barriers, and semaphores. Packets have arrived when they are read, and show that their block's earlier reads are over; its earlier
 * stores elsewhere may arrive after them. All ranks meet between two runs.
 */
enum spmt_plan_kind {
	SPMT_PLAN_PUT,	/* src[0] of this rank to dst[0] of another */
	SPMT_PLAN_GET,	/* src[0] of another rank to dst[0] of this one */
	SPMT_PLAN_COPY, /* src[0] to dst[0], both of this rank */
	SPMT_PLAN_REDUCE, /* src[0] of this rank and any others, folded in this order, to dst[0] of this
				     rank and then to the others, of any ranks */
	SPMT_PLAN_SIGNAL,	  /* to `peer`, by channel `index`, behind all this block has put */
	SPMT_PLAN_WAIT,		  /* for one more signal of `peer` by channel `index` */
	SPMT_PLAN_SIGNAL_RELAXED, /* the same, ordering nothing */
	SPMT_PLAN_WAIT_RELAXED,
	SPMT_PLAN_PUT_PACKETS, /* src[0] of this rank to dst[0], packets of any rank */
	SPMT_PLAN_UNPACK_PACKETS, /* src[0], packets of this rank, once they are there, to dst[0] of this rank */
	SPMT_PLAN_SEND_PACKETS_ON, /* src[0], packets of this rank, as they come, to each dst, packets of any rank */
	SPMT_PLAN_REDUCE_PACKETS, /* src[0] of this rank and src[1] on, packets of this rank, folded, to dst[0] of
				     this rank; and as packets to the others, of any rank */
	SPMT_PLAN_BARRIER, /* of `blocks` blocks of this rank, by `index` */
	SPMT_PLAN_RELEASE, /* semaphore `index` of this rank, one up; by one block */
	SPMT_PLAN_ACQUIRE /* one down, once it is above 0; `initial` is what it begins with. By one block */
};
enum spmt_plan_buffer { SPMT_PLAN_INPUT, SPMT_PLAN_OUTPUT, SPMT_PLAN_SCRATCH };
struct spmt_plan_chunk {
	int rank;
	enum spmt_plan_buffer buffer;
	uint32_t index, count; /* chunks [index, index + count) */
};
/* What a plan may have, and one of its operations. */
#define SPMT_PLAN_TERMS 16	 /* chunks that one operation reads, and writes */
#define SPMT_PLAN_BLOCKS 128	 /* of a rank */
#define SPMT_PLAN_INDICES 128	 /* channels to each peer, and barriers */
#define SPMT_PLAN_SEMAPHORES 256 /* of a rank */
#define SPMT_PLAN_RANKS 256
struct spmt_plan_op {
	size_t size; /* sizeof(struct spmt_plan_op), as spmt_attr's */
	enum spmt_plan_kind kind;
	int peer;	   /* of signals and waits */
	int index;	   /* 0 .. SPMT_PLAN_INDICES - 1, of a semaphore SPMT_PLAN_SEMAPHORES - 1 */
	int blocks;	   /* of a barrier */
	int initial;	   /* of a semaphore, the same in all that acquire it */
	int slice, slices; /* this is one of so many parts of all chunks named; 0, 0: the whole */
	int nsrc, ndst;
	struct spmt_plan_chunk src[SPMT_PLAN_TERMS], dst[SPMT_PLAN_TERMS]; /* all of one count */
};
struct spmt_plan_attr {
	size_t size;	  /* sizeof(struct spmt_plan_attr), as spmt_attr's */
	const char *name; /* 1 to 63 printing characters of ASCII; copied */
	const char *
		collective; /* "allreduce", "allgather", "reducescatter", "alltoall", or any other word; likewise */
	int nranks;
	int in_place;
	uint32_t input_chunks, output_chunks, scratch_chunks; /* of each rank */
	uint64_t min_bytes,
		max_bytes; /* of the input, of the output without one, of a chunk of scratch without either; max 0: no limit */
};
/* What a plan is; as attr, name and collective belonging to the plan, and how much there is in it. */
struct spmt_plan_info {
	size_t size; /* set by the caller; no more is written */
	struct spmt_plan_attr attr;
	int blocks; /* of the rank that has most */
	size_t ops;
};
typedef struct spmt_plan spmt_plan;

/* A plan without operations. -EINVAL, and a sentence, for what no plan may be: more than 1048576 chunks a buffer, say. */
SPMT_API int spmt_plan_create(const struct spmt_plan_attr *attr, spmt_plan **plan);
/* Frees a plan; NULL is fine. */
SPMT_API void spmt_plan_destroy(spmt_plan *plan);
/* Adds an operation behind those of a block. -EINVAL, and a sentence, for what cannot be: a chunk outside its buffer or of the wrong rank,
   unequal counts, packets outside scratch, .. -E2BIG: the plan has 4194304 operations. */
SPMT_API int spmt_plan_add(spmt_plan *plan, int rank, int block, const struct spmt_plan_op *op);
/* Says what a plan is. */
SPMT_API int spmt_plan_about(const spmt_plan *plan, struct spmt_plan_info *info);
/* The nth operation of a block. -ENOENT: it has no more. op->size is set by the caller. */
SPMT_API int spmt_plan_get(
	const spmt_plan *plan, int rank, int block, size_t nth, struct spmt_plan_op *op);
/*
 * Checks a plan over all ranks. 0: it terminates, whatever the blocks' speeds, and no two operations touch a chunk at once if either
 * writes it. -EINVAL, and the sentence names: a deadlock, by its cycle of operations that wait for each other; a race, by the two
 * operations; a wait that nobody signals; a signal that nobody waits for; a channel end or semaphore that two blocks share, whose signals
 * could go to either; a semaphore that begins with two counts.
 * -E2BIG: too many operations to look at.
 */
SPMT_API int spmt_plan_check(const spmt_plan *plan);
/* Makes a plan from text: the JSON execution plans of MSCCL++ 0.8 and 0.9. -EINVAL, with line and cause, for other text, and for
   features that plans here lack; or for a text of more than 134217728 values. The plan is not checked yet. */
SPMT_API int spmt_plan_read(const char *text, size_t size, spmt_plan **plan);
/* Writes a plan to text[room], ended by a zero byte, and how many bytes that takes with it to *need. -ERANGE: room is less than that; *need
   is set, text is not touched. -EINVAL: JSON has no form for one of its operations. */
enum spmt_plan_form {
	SPMT_PLAN_JSON, /* as spmt_plan_read takes it */
	SPMT_PLAN_TEXT, /* a line an operation */
	SPMT_PLAN_SVG	/* a picture: a column a block, arrows from what signals to what waits */
};
SPMT_API int spmt_plan_write(
	const spmt_plan *plan, enum spmt_plan_form form, char *text, size_t room, size_t *need);
/* Does in the calling thread what a plan does on `count` elements, as of spmt_plan_run: in[r], out[r] are rank r's buffers, in place the
   same, as spmt_plan_run has them, and overlap with no other; else -EINVAL. The blocks go on in an order that `seed` chooses. */
struct spmt_plan_trial {
	size_t size; /* sizeof(struct spmt_plan_trial), as spmt_attr's */
	void *const *out;
	void *const *in;
	size_t count;
	enum spmt_type type;
	enum spmt_op op;
	uint64_t seed;
};
SPMT_API int spmt_plan_simulate(const spmt_plan *plan, const struct spmt_plan_trial *trial);

/*
 * Opens a plan on a comm, for inputs (or outputs, where there are none) of up to max_bytes a rank. Collective; all ranks pass an equal plan
 * and the same max_bytes, else SPMT_ERR_MISMATCH. The plan is checked, and refused as by spmt_plan_check. It takes symmetric memory for
 * scratch. The plan may be destroyed while it is open. *open belongs to this rank until spmt_plan_end, which comes before spmt_finalize, in
 * a broken world, too. SPMT_ERR_UNSUPPORTED as of spmt_view_get.
 */
typedef struct spmt_plan_open spmt_plan_open;
SPMT_API int spmt_plan_begin(
	spmt_comm *comm, const spmt_plan *plan, size_t max_bytes, spmt_plan_open **open);
/* Runs it in the stream: as a collective, of all ranks in the same order, with the same count, type and op. dst (output) and src (input)
   are symmetric, and the same on all ranks; count is elements of src (of dst, where the plan has no input; of a chunk of scratch, where it
   has neither, and dst and src may be NULL), and a multiple of its chunks; of a plan with packets a chunk is a multiple of 8 bytes. In
   place, they lie as the plan says; else they do not overlap. Types: all but f8; op: all but AVG. Ends, fails and breaks the world as the
   collectives do. Where count, type, op, dst or src differs between ranks the next quiet says so to all as SPMT_ERR_MISMATCH; nothing was
   moved, and the next run is fine. Ranks that run different plans break the world. */
SPMT_API int spmt_plan_run(spmt_comm *comm, spmt_plan_open *open, void *dst, const void *src,
	size_t count, enum spmt_type type, enum spmt_op op, spmt_stream stream);
/* Collective: waits for its runs, and gives the memory back as spmt_free. open is no longer valid after 0 or -EFAULT, or in a broken comm: passing
   it here or to spmt_plan_run is then -EINVAL, as on another comm, until spmt_plan_begin returns the same pointer again; in a broken comm
   the code is the comm's. After other failures
   (-EBUSY, SPMT_ERR_MISMATCH, what a rank's quiet failed with) no rank has given anything back, and all may end it again. Do not launch graphs
   that hold its runs any more: virtual devices refuse, others would use memory already freed. */
SPMT_API int spmt_plan_end(spmt_comm *comm, spmt_plan_open *open);

/* ---- host backend only --------------------------------------------------------------------- */

/* kernel(copy of args) in stream order on the rank's virtual device, on a thread with a stack of
   2 MiB; on other backends SPMT_ERR_UNSUPPORTED. In the comm's own stream it is work of the comm, which quiet and barrier complete; in
   another they do not wait for it, just as for kernels that a vendor's runtime launches. In either case the memory that the comm's views
   name stays until the kernel has ended: spmt_finalize waits for it, a second at most, and abandons what still runs. */
SPMT_API int spmt_host_launch(spmt_comm *comm, spmt_stream stream, void (*kernel)(void *args),
	const void *args, size_t args_size);
/* A stream of the host backend on the comm's device. */
SPMT_API int spmt_host_stream_create(spmt_comm *comm, spmt_stream *stream);
/* Waits until all work in the stream is done, and reports failed work of the library there, until
   there is new work. SPMT_TIMEOUT_MS is its deadline. SPMT_STREAM_LEGACY, _PER_THREAD: the one of
   every open device. */
SPMT_API int spmt_host_stream_synchronize(spmt_stream stream);
/* Waits for nothing; queued work still runs. */
SPMT_API int spmt_host_stream_destroy(spmt_stream stream);
/*
 * What calls put into `stream` between begin and end is kept, not run: collectives, barriers, puts, gets, signals and waits on
 * streams, kernels. spmt_on_complete, collectives between nodes, and those of lanes within one process refuse. The stream is one of spmt_host_stream_create;
 * until end it cannot be synchronized (-EBUSY). end makes the graph, or fails; with -EINVAL the capture goes on, else it is over.
 */
typedef struct spmt_host_graph spmt_host_graph;
SPMT_API int spmt_host_graph_begin(spmt_stream stream);
SPMT_API int spmt_host_graph_end(spmt_stream stream, spmt_host_graph **graph);
/* Puts all that the graph holds into a stream of spmt_host_stream_create on its device, as one piece of work, as often as wanted; any
   thread. Launches run one after the other, whatever streams they are in. Failures are reported as in streams. -EBADF once a comm, or an
   open plan, whose work it holds has ended; ending it waits for running launches. */
SPMT_API int spmt_host_graph_launch(spmt_host_graph *graph, spmt_stream stream);
/* Waits for nothing; what was launched still runs. */
SPMT_API int spmt_host_graph_destroy(spmt_host_graph *graph);
/* The calling thread's current virtual device, as a vendor's runtime has one. */
SPMT_API int spmt_host_get_device(void);
SPMT_API int spmt_host_set_device(int device);

/* ---- counters ------------------------------------------------------------------------------ */

/* Counters of this rank since init: of the host's puts, gets, signals and atomics, not of what collectives and kernels move. pe -1: all
   peers together. */
struct spmt_mover_stats {
	uint64_t ops, bytes;
};
struct spmt_stats {
	size_t size;	     /* set by the caller: sizeof(struct spmt_stats) */
	uint64_t ops, bytes; /* to and from pe, all movers; signals and atomics are ops of 8 bytes
				or fewer, a put with signal is two */
	struct spmt_mover_stats store, sdma, verbs; /* the same by mover */
	uint64_t waits, longest_wait_ns;	    /* of this rank, whoever was waited for */
};
SPMT_API int spmt_stats(spmt_comm *comm, int pe, struct spmt_stats *stats);

#ifdef __cplusplus
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}
#endif

#endif
