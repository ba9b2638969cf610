/* SPDX-License-Identifier: MIT */
/*
 * What belongs to this process and not to a child it forks.
 *
 * A forked child inherits copies of our tables, of locks that other threads held, and shared
 * mappings of heaps that are not its own. So state that describes the process lies in pages that
 * a child sees as zeros (MADV_WIPEONFORK): an empty table, an unlocked mutex (all zeros with
 * glibc), no live comm. One load finds out.
 */
#ifndef SPMT_PROCESS_H
#define SPMT_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Zeroed, page-aligned memory that a forked child sees as zeros. Refusable (FAULT_MAP); NULL on
 * failure. Where the kernel has no MADV_WIPEONFORK, the memory is returned all the same, and a
 * child looks like its parent.
 */
void *process_pages(size_t size);
void process_pages_free(void *ptr, size_t size);

/*
 * The state of one module, made on first use and never freed: `slot` is the module's one file-scope pointer. Safe from any
 * thread: the first to publish wins. In a forked child the same pointer leads to zeros. NULL: out of memory.
 */
void *process_state(void *_Atomic *slot, size_t size);

/* 16 random bytes, made once a process; a forked child makes its own. "Same process" is equality of these, never a pid. */
int process_nonce(unsigned char nonce[16]);

/* A number that this process has not drawn before, until it has drawn all there are. The first is a random one, so that another process has
   others. */
int process_draw(uint32_t *number);

/* The kernel's boot id: equal for processes of one node, different between nodes. Zeros where the
   kernel has none. Fails only if memory or descriptors run out. */
int process_host(unsigned char host[16]);
/* Whether the kernel, or /proc, had one there. */
bool process_host_known(const unsigned char host[16]);

/* Folds the process's network namespace into what process_host gave: across two of them no socket is found by name, and processes
   are as on two nodes. */
void process_network(unsigned char host[16]);

/* Fills buf from the kernel's generator. */
int process_random(void *buf, size_t size);

/*
 * Call on each new descriptor that is kept. Returns fd itself; if that is 0, 1 or 2, closes it
 * and returns a close-on-exec copy of 3 or more. A program that has closed its standard streams
 * still writes to those numbers. fd below 0: fd. -1 and errno: no room for a copy, and fd is
 * closed.
 */
int process_fd(int fd);

/*
 * A descriptor by whose end others learn of this process's: a copy in a forked child would hold that up. So no child is forked while
 * make(arg) makes it, and children that are forked later close their copies before fork() returns there. Closing it here needs no
 * word. What make() returns; -1 and errno, -ENOMEM for memory, where nothing could be kept. Children that fork() has not made, by
 * clone(2) or _Fork(), keep copies until they exec.
 */
int process_own(int (*make)(int arg), int arg);

/* Whether RLIMIT_FSIZE lets a file grow to this size: the kernel would send SIGXFSZ, which ends the process. */
bool process_file_fits(uint64_t size);

/* write(2) without the signals that the kernel sends with EPIPE and EFBIG, as they end a program which does not expect them. No cancellation
   point. At most PIPE_BUF bytes into what may be a pipe. */
ssize_t process_write(int fd, const void *data, size_t size);

/* CPUs in the calling thread's affinity mask, at least 1. */
int process_cpus(void);

/* Disables cancellation of the calling thread; returns the argument for process_cancel_restore(). */
int process_cancel_off(void);
void process_cancel_restore(const int *state);

/* Disables cancellation to the end of the block: a cancelled call would leave its locks held. */
#define UNCANCELLED                                                                      \
	__attribute__((cleanup(process_cancel_restore), unused)) const int uncancelled = \
		process_cancel_off()

/*
 * A thread that blocks all signals except those of faults, which must reach the program's handler or a sanitizer's. stack: its bytes, beside those of
 * the program's thread-local variables, which a C library puts there, too; 0: as many as the program's threads have. Returns an errno value.
 */
int process_thread(pthread_t *thread, size_t stack, void *(*fn)(void *arg), void *arg);

/* Monotonic clock, ns. */
int64_t process_now(void);
/* From now to then, 0 if that has passed. */
int64_t process_left(int64_t then);

/* A deadline, in milliseconds. */
#define TIMEOUT_MOST (INT64_MAX / 4000000) /* ms: in nanoseconds within the clock's range */

#endif
