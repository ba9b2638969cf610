/* SPDX-License-Identifier: MIT */
/*
 * The environment: every variable is one line of the table below, which feeds the parser, `spmt-info --env` and the check
 * of the table in docs/environment.md. Read once a process, at the first call that needs it, never before main.
 *
 * kinds: SIZE bytes with an optional suffix K M G T (powers of 1024); MS milliseconds, may be negative; INT(min, max); TEXT, taken
 * as it is, checked by its user; ENUM(words) one of the words, its value their position; LIST(words) comma-separated ones of
 * them, a leading '-' forbids.
 * A default of "" means: unset. An empty variable counts as unset. In a program that runs with more rights than its caller has
 * (set-user-ID, set-group-ID, file capabilities) all variables count as unset: they name libraries to load and files to write.
 */
#ifndef SPMT_ENV_H
#define SPMT_ENV_H

#include "base.h"

/* clang-format off */
/*      field         name                  kind  default   help */
#define ENV_TABLE(X)                                                                               \
	X(backend, "SPMT_BACKEND", TEXT, "",                                                       \
		"backend to use: hip, cuda or host; unset: the first with devices and kernels")    \
	X(timeout, "SPMT_TIMEOUT_MS", MS, "10000",                                                 \
		"deadline of every wait, milliseconds; 0: nothing is waited for; negative: none")  \
	X(heap_size, "SPMT_HEAP_SIZE", SIZE, "1G", "symmetric heap of a rank, bytes, where spmt_attr says none")              \
	X(heap_mode, "SPMT_HEAP_MODE", ENUM("auto|static|vmm"), "auto",                            \
		"one allocation a device, or commit on demand; auto: vmm where all devices have it and all ranks are in one process") \
	X(host_devices, "SPMT_HOST_DEVICES", INT(0, 4096), "8", "virtual devices of the host backend") \
	X(maps, "SPMT_MAPS", LIST("p2p|ipc|rdma"), "",                                             \
		"maps allowed, in order; a leading - forbids one; unset: all")                     \
	X(moves, "SPMT_MOVES", LIST("store|sdma|verbs"), "",                                       \
		"movers allowed, in order; a leading - forbids one; unset: all")                   \
	X(threshold, "SPMT_STORE_THRESHOLD", SIZE, "",                                             \
		"bytes up to which the store mover is used; unset: the backend's measured value")  \
	X(channels, "SPMT_CHANNELS", INT(1, 8), "1", "copy queues a (source, destination) pair, of mover sdma")   \
	X(sdma, "SPMT_SDMA", ENUM("streams|queues"), "streams",                                    \
		"what copies of mover sdma are queued in: queues that AMD's engines read from user space, streams where there are none") \
	X(spin, "SPMT_SPIN_US", INT(0, 1000), "20", "longest spin of a host wait where ranks fit the CPUs, microseconds")              \
	X(coll, "SPMT_COLL", TEXT, "",                                                             \
		"algorithm of collectives where it fits kind and size; or plan:FILE, a plan for the calls of its kind that it fits, also several and at most one algorithm, with commas between, and only, where there are plans: calls that have plans of their kind and fit none fail. The same on all ranks; a name that is none is refused with those there are; unset: by kind and size") \
	X(coll_blocks, "SPMT_COLL_BLOCKS", INT(1, 128), "128", "the most blocks of a collective's kernel, plans' apart; each keeps a multiprocessor of a GPU, or a part of it, while a rank is late") \
	X(routes, "SPMT_ROUTES", TEXT, "", "file to which each process appends its routes at init, which fails where that fails") \
	X(trace, "SPMT_TRACE", TEXT, "", "file to which each process writes its calls at finalize, for chrome://tracing; that of rank 0 begins it anew at init, which fails where that fails") \
	X(uid, "SPMT_UID", TEXT, "", "the uid of a job that no launcher started: the 256 digits that spmt-info --uid prints, or the path, with a / in it, of a file that holds them, which is waited for; it is a secret") \
	X(process, "SPMT_PROCESS", TEXT, "", "which process of the job that SPMT_UID names this is: its number from 0 on and how many there are (9/16), and how many of its node come before it (9/16/1); if that is not said, all with lower numbers") \
	X(socket_ifname, "SPMT_SOCKET_IFNAME", TEXT, "",                                           \
		"interfaces whose addresses a uid made here carries, up to three, by which processes of other nodes find its world: names, or what they begin with, and subnets such as 10.1.0.0/16, comma-separated; =eth0: this name alone, ^docker: all but these; unset: one node") \
	X(socket_lost, "SPMT_SOCKET_LOST_MS", INT(100, 600000), "800",                             \
		"how long another node may answer nothing before it counts as gone, milliseconds") \
	X(hip_lib, "SPMT_HIP_LIB", TEXT, "", "path of libamdhip64; unset: .so.7, .so.6, .so.5")    \
	X(cuda_lib, "SPMT_CUDA_LIB", TEXT, "", "path of libcuda; unset: libcuda.so.1")             \
	X(hsakmt_lib, "SPMT_HSAKMT_LIB", TEXT, "",                                                 \
		"path of libhsakmt, for SPMT_SDMA=queues on AMD; unset: libhsakmt.so.1")           \
	X(pmix_lib, "SPMT_PMIX_LIB", TEXT, "", "path of libpmix; unset: libpmix.so.2")             \
	X(verbs_lib, "SPMT_VERBS_LIB", TEXT, "", "path of libibverbs; unset: libibverbs.so.1")     \
	X(rdma_device, "SPMT_RDMA_DEVICE", TEXT, "", "RDMA devices allowed, comma-separated, a port after a colon (mlx5_0:1,mlx5_1); unset: those with an active port") \
	X(rdma_gid, "SPMT_RDMA_GID", INT(-1, 1023), "-1", "index of the port's GID; -1: the first of RoCE v2, for an IPv4 address if there is one") \
	X(rdma_tc, "SPMT_RDMA_TC", INT(0, 255), "0", "traffic class of what goes over RDMA devices") \
	X(rdma_lazy, "SPMT_RDMA_LAZY", ENUM("0|1"), "1", "1: a connection between RDMA devices is made on first use; 0: all of a rank's at init, which fails where one does") \
	X(rdma_timeout, "SPMT_RDMA_TIMEOUT", INT(1, 31), "14", "how long an RDMA device waits for an answer before it tries again, 6 times: 4.1 us times 2 to the power of this, so 14 is 67 ms and 18 is 1.1 s") \
	X(rdma_atomics, "SPMT_RDMA_ATOMICS", ENUM("auto|cpu|nic"), "auto", "who does 64-bit atomics in a rank's memory that come over RDMA devices: auto: the device if its atomics are atomic with the CPU's, else the CPU; nic: the device in any case, and then no rank of this node changes those words atomically") \
	X(rdma_cache, "SPMT_RDMA_CACHE", ENUM("auto|off|trust"), "auto", "whether RDMA devices keep knowing large buffers of moves that nobody has registered: auto: where the kernel says at each use that the pages are the same, which takes CAP_SYS_ADMIN; trust: always, and then such memory may not be given back while the world is") \
	X(rdma_cache_from, "SPMT_RDMA_CACHE_FROM", SIZE, "256K", "bytes of a move from which SPMT_RDMA_CACHE counts; smaller ones are copied") \
	X(rdma_cache_size, "SPMT_RDMA_CACHE_SIZE", SIZE, "1G", "bytes that a device keeps knowing so, at most") \
	X(rdma_connections, "SPMT_RDMA_CONNECTIONS", INT(1, 16), "1", "connections between two ports, which ranks share out, each with room of its own for what is in flight; ends may differ") \
	X(rdma_stripe, "SPMT_RDMA_STRIPE", INT(1, 4), "1", "RDMA devices a rank uses at most, the nearest ones: large moves are cut into a piece for each; ranks may differ") \
	X(rdma_stripe_from, "SPMT_RDMA_STRIPE_FROM", SIZE, "512K", "bytes for each RDMA device from which a move is cut for SPMT_RDMA_STRIPE") \
	X(multicast, "SPMT_MULTICAST", ENUM("0|1"), "0", "1: switch channels go by the switch's multicast on NVIDIA GPUs, and spmt_switch_get fails where that cannot be; 0: loads and stores go to each rank in turn, and nothing of a driver's multicast is touched") \
	X(log, "SPMT_LOG", ENUM("none|error|warn|info|debug"), "", "what is written to stderr: error what breaks a world, work in flight at its end, traces not written and hellos refused; warn unknown variables and what is done without: a row, copy queues, a port; info what a world is; debug every failure; unset: unknown variables, once a process, and nothing else") \
	X(check, "SPMT_CHECK", ENUM("auto|0|1"), "auto",                                           \
		"1: calls look for misuse of memory and threads and tell it, on stderr as well; auto: a library built with AddressSanitizer looks") \
	X(fault, "SPMT_FAULT", TEXT, "",                                                           \
		"<site>:<n> makes the nth request of a resource fail; site: any, alloc, map, fd, thread, device, memory, register, peer")
/* clang-format on */

enum env_heap_mode { ENV_HEAP_AUTO, ENV_HEAP_STATIC, ENV_HEAP_VMM };

enum env_sdma { ENV_SDMA_STREAMS, ENV_SDMA_QUEUES };

enum env_check { ENV_CHECK_AUTO, ENV_CHECK_OFF, ENV_CHECK_ON };

#define ENV_SIZE_UNSET UINT64_MAX

/* One member a line, its type by kind. Unset: strings NULL, sizes ENV_SIZE_UNSET. Strings live as long as the process. */
struct env {
#define ENV_TYPE_SIZE uint64_t
#define ENV_TYPE_MS int64_t
#define ENV_TYPE_INT(low, high) int64_t
#define ENV_TYPE_TEXT const char *
#define ENV_TYPE_LIST(words) const char *
#define ENV_TYPE_ENUM(words) int
#define X(field, name, kind, def, help) ENV_TYPE_##kind field;
	ENV_TABLE(X)
#undef X
};

/* The process's environment. A value that does not parse is an error. Its sentence names the variable, the value and what is accepted;
   later calls return the same error. Any thread. */
int env_get(const struct env **env);

/* Whether the program runs with more rights than its caller has, so that nothing is read. */
bool env_withheld(void);

/* Whether a launcher that speaks PMIx has started this process, as PMIX_NAMESPACE and PMIX_RANK say now. */
bool env_launched(void);

/* The result of an earlier env_get, or NULL; whether SPMT_LOG was set then. Never fail and read nothing, since another thread may set variables. */
const struct env *env_loaded(void);
bool env_said_log(void);

/*
 * The parser itself, pure: `lookup` gives a variable's text or NULL. Strings point to what lookup
 * returned. On failure *env is not written and a sentence is recorded.
 */
int env_parse(const char *(*lookup)(const char *name, void *ctx), void *ctx, struct env *env);

enum env_kind { ENV_SIZE, ENV_MS, ENV_INT, ENV_TEXT, ENV_LIST, ENV_ENUM };

/* A row of the table. */
struct env_row {
	const char *name, *kind_name, *def, *help;
	const char *accepts; /* words with | between, or a range; NULL: anything of its kind */
	const char *value;   /* what the process would read now, or NULL */
	int64_t min, max;    /* of an INT */
	enum env_kind kind;
	bool wrong; /* the value does not parse */
};
/* What a kind says of its row. */
#define ENV_ROW_SIZE .kind = ENV_SIZE, .kind_name = "SIZE"
#define ENV_ROW_MS .kind = ENV_MS, .kind_name = "MS"
#define ENV_ROW_INT(low, high)                                            \
	.kind = ENV_INT, .kind_name = "INT", .min = (low), .max = (high), \
	.accepts = #low " to " #high
#define ENV_ROW_TEXT .kind = ENV_TEXT, .kind_name = "TEXT"
#define ENV_ROW_LIST(words) .kind = ENV_LIST, .kind_name = "LIST", .accepts = (words)
#define ENV_ROW_ENUM(words) .kind = ENV_ENUM, .kind_name = "ENUM", .accepts = (words)

/* For tools: row i with its value, false past the end. */
bool env_row(size_t i, struct env_row *row);

/* The variable whose name is most like `name`, which is no variable; NULL: none is like it. */
const char *env_near(const char *name);

/* Each variable of the environment that begins like the library's but is read by nobody, in printing characters, with the result of env_near. */
void env_unknown(void (*tell)(void *ctx, const char *name, const char *near), void *ctx);

/* A LIST's verdict on a word: position in the list (0 first) if named, -1 if forbidden or not in a list that names others,
   the position of `otherwise` if the list says nothing. Unset list: `otherwise`. */
int env_list_rank(const char *list, const char *word, int otherwise);

#endif
