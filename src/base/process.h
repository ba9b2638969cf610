/* SPDX-License-Identifier: MIT */
/*
 * What belongs to this process and not to a child it forks.
 *
 * A forked child inherits copies of our tables, of locks that other threads held, and shared mappings of heaps it has
 * no part in. So state that describes the process lives in pages that the kernel hands to a child as zeros
 * (MADV_WIPEONFORK): an empty table, an unlocked mutex (all zeros with glibc), no live comm. One load tells.
 */
#ifndef SPMT_PROCESS_H
#define SPMT_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Zeroed, page-aligned memory that a forked child sees as zeros. Refusable (FAULT_MAP); NULL on failure. Where the kernel
 * knows no MADV_WIPEONFORK the memory is still returned (a child is then not told apart).
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

/* Equal for processes of one node, different between nodes: the kernel's boot id. Zeros where it does
   not tell. Fails only for want of memory. */
int process_host(unsigned char host[16]);

/* Fills buf from the kernel's generator. */
int process_random(void *buf, size_t size);

/*
 * What a descriptor that is kept goes through when it is made: fd itself, or, where it is 0, 1 or 2, a close-on-exec copy
 * from 3 on, fd being closed then. A program that has closed its standard streams still writes to those numbers. fd below
 * 0: fd. -1 and errno: no room for a copy, and fd is closed.
 */
int process_fd(int fd);

/* Whether RLIMIT_FSIZE lets a file grow to this size: the kernel would send SIGXFSZ, which ends the process. */
bool process_file_fits(uint64_t size);

/* CPUs in the calling thread's affinity mask, at least 1. */
int process_cpus(void);

/* The calling thread can no longer be cancelled; returns what process_cancel_restore() wants. */
int process_cancel_off(void);
void process_cancel_restore(const int *state);

/* From here to the end of the block: no call of the library is a cancellation point, as what it holds, locks above all,
   would stay held. */
#define UNCANCELLED                                                                      \
	__attribute__((cleanup(process_cancel_restore), unused)) const int uncancelled = \
		process_cancel_off()

/*
 * pthread_create() of a thread that takes no signals, which are the program's business; but a fault in it reaches its handler,
 * or a sanitizer's. Returns an errno value.
 */
int process_thread(
	pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg);

/* Monotonic clock, ns. */
int64_t process_now(void);

/* A deadline, in milliseconds. */
#define TIMEOUT_MOST (INT64_MAX / 4000000) /* ms: in nanoseconds within the clock's range */

#endif
