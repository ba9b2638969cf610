/* SPDX-License-Identifier: MIT */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base.h"
#if SANITIZE_ADDRESS
#include <sanitizer/lsan_interface.h>
#endif
#include "fault.h"
#include "mem.h"
#include "status.h"
#include "tsan.h"

#define MAX_CPUS 8192 /* the most that Linux can be built for on x86 */

struct identity {
	pthread_mutex_t lock; /* guards the rest */
	bool made;
	unsigned char nonce[16];
	bool asked;
	unsigned char host[16];
	uint32_t drawn;
	pthread_mutex_t
		forking; /* held while a child is forked, or a descriptor is made that it may not keep */
};

/* What fd led to when it was made: by now it may be closed, and its number another's. */
struct owned {
	struct owned *next;
	int fd;
	dev_t device;
	ino_t inode;
};

static struct {
	void *_Atomic identity; /* in pages that a child sees as zeros */
	bool prepared;		/* for forks; guarded by the identity's lock */
	struct owned *owned;	/* guarded by `forking`; a child sees it */
} here;

void *process_pages(size_t size)
{
	void *ptr;

	if (fault_here(FAULT_MAP))
		return NULL;
	ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ptr == MAP_FAILED)
		return NULL;
	madvise(ptr, size, MADV_WIPEONFORK);
	return ptr;
}

void process_pages_free(void *ptr, size_t size)
{
	if (ptr)
		munmap(ptr, size);
}

void *process_state(void *_Atomic *slot, size_t size)
{
	void *have = atomic_load_explicit(slot, memory_order_acquire);
	void *mine;

	tsan_acquire(slot);
	if (have)
		return have;
	mine = process_pages(size);
	if (!mine)
		return NULL;
	tsan_release(slot);
	if (atomic_compare_exchange_strong(slot, &have, mine)) {
#if SANITIZE_ADDRESS
		__lsan_register_root_region(mine, size); /* what it points to is not lost */
#endif
		return mine;
	}
	tsan_acquire(slot);
	process_pages_free(mine, size);
	return have;
}

int process_random(void *buf, size_t size)
{
	unsigned char *at = buf;

	while (size) {
		/* the raw call, because glibc's is a cancellation point */
		long got = syscall(SYS_getrandom, at, size, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fail_errno(errno, "getrandom of %zu bytes", size);
		at += got;
		size -= (size_t)got;
	}
	return 0;
}

int process_nonce(unsigned char nonce[16])
{
	struct identity *id = process_state(&here.identity, sizeof(*id));
	int rc = 0;

	if (!id)
		return fail(-ENOMEM, "no memory for the identity of the process");
	pthread_mutex_lock(&id->lock);
	if (!id->made)
		rc = process_random(id->nonce, sizeof(id->nonce));
	if (!rc) {
		id->made = true;
		memcpy(nonce, id->nonce, sizeof(id->nonce));
	}
	pthread_mutex_unlock(&id->lock);
	return rc;
}

int process_draw(uint32_t *number)
{
	unsigned char nonce[16];
	uint32_t first;
	struct identity *id;
	int rc = process_nonce(nonce);

	if (rc)
		return rc;
	id = atomic_load_explicit(&here.identity, memory_order_acquire);
	memcpy(&first, nonce, sizeof(first));
	pthread_mutex_lock(&id->lock);
	*number = first + id->drawn++;
	pthread_mutex_unlock(&id->lock);
	return 0;
}

/* Packs the hex digits of a UUID of 36 characters; missing digits stay zero. Zeros for want of a descriptor would make another
   node of this process. */
static int boot_id_read(unsigned char host[16])
{
	static const char name[] = "/proc/sys/kernel/random/boot_id";
	char text[64] = "";
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return fail_errno(errno, "%s", name);
	got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	for (ssize_t i = 0, digit = 0; i < got && digit < 32; i++) {
		int c = (unsigned char)text[i],
		    value = c >= '0' && c <= '9' ? c - '0'
			: c >= 'a' && c <= 'f'	 ? c - 'a' + 10
						 : -1;

		if (value < 0)
			continue;
		host[digit / 2] = (unsigned char)(host[digit / 2] << 4 | value);
		digit++;
	}
	return 0;
}

int process_host(unsigned char host[16])
{
	struct identity *id = process_state(&here.identity, sizeof(*id));
	int rc = 0;

	if (!id)
		return fail(-ENOMEM, "no memory for the identity of the process");
	pthread_mutex_lock(&id->lock);
	if (!id->asked)
		rc = boot_id_read(id->host);
	id->asked = !rc;
	memcpy(host, id->host, sizeof(id->host));
	pthread_mutex_unlock(&id->lock);
	return rc;
}

bool process_host_known(const unsigned char host[16])
{
	static const unsigned char none[8];

	return memcmp(host, none, sizeof(none)) != 0;
}

void process_network(unsigned char host[16])
{
	struct stat s;
	uint64_t word;

	if (stat("/proc/self/ns/net", &s))
		return;
	memcpy(&word, host + 8, sizeof(word));
	word ^= (uint64_t)s.st_ino * 0x9e3779b97f4a7c15u;
	memcpy(host + 8, &word, sizeof(word));
}

int process_fd(int fd)
{
	int copy, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	/* fcntl returns EINVAL where RLIMIT_NOFILE is 3 or less */
	err = errno == EINVAL ? EMFILE : errno;
	close(fd);
	if (copy < 0)
		errno = err;
	return copy;
}

/* ---- what a child lets go of --------------------------------------------------------------- */

static struct identity *identity(void)
{
	return atomic_load_explicit(&here.identity, memory_order_acquire);
}

static void fork_begins(void)
{
	pthread_mutex_lock(&identity()->forking);
}

static void fork_ends(void)
{
	pthread_mutex_unlock(&identity()->forking);
}

/* The lock is free by the page it lies in, unless the kernel cannot wipe that. */
static void child_begins(void)
{
	UNCANCELLED;

	for (const struct owned *o = here.owned; o; o = o->next) {
		struct stat s;

		if (!fstat(o->fd, &s) && s.st_dev == o->device && s.st_ino == o->inode)
			close(o->fd);
	}
	pthread_mutex_init(&identity()->forking, NULL);
}

/* Returns an errno value. A child has the handlers, too. */
static int forks_prepare(void)
{
	struct identity *id = process_state(&here.identity, sizeof(*id));
	int err = 0;

	if (!id)
		return ENOMEM;
	pthread_mutex_lock(&id->lock);
	if (!here.prepared)
		err = pthread_atfork(fork_begins, fork_ends, child_begins);
	here.prepared = !err;
	pthread_mutex_unlock(&id->lock);
	return err;
}

/* `spare` is taken unless an entry has had the number before. */
static void owned_keep(int fd, struct owned **spare)
{
	struct owned *o = here.owned;
	struct stat s;

	while (o && o->fd != fd)
		o = o->next;
	if (!o) {
		o = *spare;
		*spare = NULL;
		o->fd = fd;
		o->next = here.owned;
		here.owned = o;
	}
	if (!fstat(fd, &s)) {
		o->device = s.st_dev;
		o->inode = s.st_ino;
	}
}

/* The memory comes first: who forks may hold an allocator's locks by the time he waits for ours. */
int process_own(int (*make)(int arg), int arg)
{
	struct owned *spare = mem_calloc(1, sizeof(*spare));
	int fd = -1, err = spare ? forks_prepare() : ENOMEM;

	if (!err) {
		fork_begins();
		fd = make(arg);
		err = errno;
		if (fd >= 0)
			owned_keep(fd, &spare);
		fork_ends();
	}
	mem_free(spare);
	errno = err;
	return fd;
}

bool process_file_fits(uint64_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
		size <= limit.rlim_cur;
}

/* One that was pending before is the program's. */
ssize_t process_write(int fd, const void *data, size_t size)
{
	UNCANCELLED;
	const struct timespec none = { 0 };
	sigset_t before, own, pending;
	ssize_t done;
	int err, sent;

	sigemptyset(&own);
	sigaddset(&own, SIGPIPE);
	sigaddset(&own, SIGXFSZ);
	sigemptyset(&pending);
	pthread_sigmask(SIG_BLOCK, &own, &before);
	sigpending(&pending);
	done = write(fd, data, size);
	err = errno;
	sent = done >= 0 ? 0 : err == EPIPE ? SIGPIPE : err == EFBIG ? SIGXFSZ : 0;
	if (sent && !sigismember(&pending, sent)) {
		sigemptyset(&own);
		sigaddset(&own, sent);
		sigtimedwait(&own, NULL, &none);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = err;
	return done;
}

int process_cpus(void)
{
	unsigned long mask[MAX_CPUS / (8 * sizeof(unsigned long))];
	int n;

	memset(mask, 0, sizeof(mask));
	if (sched_getaffinity(0, sizeof(mask), (cpu_set_t *)mask))
		return 1;
	n = CPU_COUNT_S(sizeof(mask), (cpu_set_t *)mask);
	return n > 0 ? n : 1;
}

int process_cancel_off(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

void process_cancel_restore(const int *state)
{
	pthread_setcancelstate(*state, NULL);
}

static int add_thread_locals(struct dl_phdr_info *object, size_t size, void *arg)
{
	size_t *sum = arg;

	(void)size;
	for (size_t i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];

		if (part->p_type == PT_TLS)
			*sum += part->p_memsz + part->p_align;
	}
	return 0;
}

static int create(pthread_t *thread, size_t stack, void *(*fn)(void *arg), void *arg)
{
	pthread_attr_t attr;
	int err = pthread_attr_init(&attr);

	if (err)
		return err;
	if (stack)
		dl_iterate_phdr(add_thread_locals, &stack);
	if (stack)
		err = pthread_attr_setstacksize(&attr, stack);
	if (!err)
		err = pthread_create(thread, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	return err;
}

/* Not pthread_attr_setsigmask_np(): glibc has it since 2.32, musl not at all. */
int process_thread(pthread_t *thread, size_t stack, void *(*fn)(void *arg), void *arg)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
	sigset_t blocked, old;
	int err;

	sigfillset(&blocked);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		sigdelset(&blocked, own[i]);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	err = create(thread, stack, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

int64_t process_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t process_left(int64_t then)
{
	int64_t left = then - process_now();

	return MAX_OF(left, 0);
}
