/* SPDX-License-Identifier: MIT */
#include "vendor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "include/spmt.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"
#include "src/kernels/plan_row.h"

#define SPIN_NS 20000 /* a short copy ends within it */
#define YIELDS 16
#define SLEEP_MIN_NS 20000
#define SLEEP_MAX_NS 1000000 /* the longest that a raised stop word goes unseen */
#define PIECES_MAX 64
#define LIBRARY_MOST ((size_t)256 << 20) /* of addresses that a vendor's library takes */

/* Unsorted: so few rows are found faster by address than by name. */
static const struct kernel *const library_kernels[] = { &kernel_copy, &kernel_signal, &kernel_wait,
	&kernel_atomic, &kernel_barrier, &kernel_collective, &kernel_collective_v, &kernel_stage,
	&kernel_plan, &kernel_plan_row, &kernel_give,
#define X(name) &kernel_ll_##name, &kernel_ll_brief_##name,
	COLL_LL_KERNELS(X)
#undef X
#define X(name) &kernel_twoshot_##name, &kernel_ll_abreast_##name,
		COLL_FOLD_KERNELS(X)
#undef X
#define X(name) &kernel_push2_##name,
			COLL_PUSH2_KERNELS(X)
#undef X
#define X(name) &kernel_plan_packets_##name, &kernel_plan_packets_brief_##name,
				PLAN_PACKETS_KERNELS(X)
#undef X
/* last: for vendors whose units are whole */
#define X(name) &kernel_ll12_odd_##name, &kernel_ll12_pair_##name, &kernel_ll12_##name,
					COLL_LL12_KERNELS(X)
#undef X
};
#define X(name) +3
enum { WHOLE_KERNELS = 0 COLL_LL12_KERNELS(X) };
#undef X
_Static_assert(ARRAY_SIZE(library_kernels) <= ARRAY_SIZE(((struct vendor_kernels *)0)->handle),
	"a handle for every kernel");

/* dlopen() waits for ever for the other end of a FIFO, and opening some devices does something. */
static bool may_be_library(const char *path)
{
	struct stat s;

	return !strchr(path, '/') || stat(path, &s) || S_ISREG(s.st_mode);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* To be written, which counts where the machine promises no more memory than it has. */
static bool lacks_memory(void)
{
	void *room = mmap(
		NULL, LIBRARY_MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (room == MAP_FAILED)
		return true;
	munmap(room, LIBRARY_MOST);
	return false;
}

/* dlopen() leaves no code, but ends with the text of one. Not so where it has found a library and no memory for it. */
static int why_not_loaded(char reason[VENDOR_REASON])
{
	static const int codes[] = { ENOENT, EMFILE, ENFILE, ENOMEM };
	const char *error = dlerror();
	size_t i;

	snprintf(reason, VENDOR_REASON, "%s", error ? error : "unknown");
	for (i = 0; error && i < ARRAY_SIZE(codes); i++)
		if (ends_with(error, strerror(codes[i])))
			return -codes[i];
	return lacks_memory() ? -ENOMEM : -ENOENT;
}

/*
 * Never closed: the runtimes keep threads, and pages mapped into devices, that outlive any dlclose.
 * A second copy of a runtime in one process is worse than an odd version, hence RTLD_NOLOAD over
 * all names first.
 */
int vendor_open(const char *path, const char *const *names, size_t n, char reason[VENDOR_REASON],
	void **library)
{
	const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
	void *found = NULL;
	/* glibc that has no descriptor for its list of names goes without that from then on */
	int rc = path ? 0 : vendor_lacks_fd();
	size_t i;

	if (rc) {
		snprintf(reason, VENDOR_REASON, "%s", strerror(-rc));
		return rc;
	}
	rc = -ENOENT;
	if (path && !may_be_library(path)) {
		snprintf(reason, VENDOR_REASON, "%.200s is not a regular file", path);
		return rc;
	}
	if (path) {
		names = &path;
		n = 1;
	}
	for (i = 0; i < n && !found; i++)
		found = dlopen(names[i], flags | RTLD_NOLOAD);
	/* behind a shortage the next name may be there: of another version */
	for (i = 0; i < n && !found && rc == -ENOENT; i++) {
		found = dlopen(names[i], flags);
		if (!found)
			rc = why_not_loaded(reason);
	}
	if (!found)
		return rc;
	*library = found;
	return 0;
}

const char *vendor_bind(void *library, const struct vendor_symbol *symbols, size_t n, void *table)
{
	size_t i;

	for (i = 0; i < n; i++) {
		void *address = dlsym(library, symbols[i].name);

		if (!address && !symbols[i].optional)
			return symbols[i].name;
		memcpy((char *)table + symbols[i].offset, &address, sizeof(address));
	}
	return NULL;
}

int vendor_faulted(enum fault_site site, const char *backend, const char *what, int dev)
{
	return fail(
		-fault_errno(site), "%s: %s on device %d refused (SPMT_FAULT)", backend, what, dev);
}

int vendor_export_fd(const char *backend, int dev, int made, int *fd)
{
	made = process_fd(made);
	if (made < 0)
		return fail_errno(errno, "%s: export on device %d: no descriptor", backend, dev);
	*fd = made;
	return 0;
}

int vendor_lacks_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd < 0 && (errno == EMFILE || errno == ENFILE) ? -errno : 0;
}

/* 90 for sm_90; 0 for what runs on one chip only (sm_90a) and for anything else. */
static int sm_number(const char *arch)
{
	char *end;
	long number;

	if (strncmp(arch, "sm_", 3))
		return 0;
	number = strtol(arch + 3, &end, 10);
	return *end || number < 0 || number > 10000 ? 0 : (int)number;
}

size_t vendor_pick(const struct device_image *images, size_t n, const char *arch,
	const struct device_image *best[2])
{
	const struct device_image *exact = NULL, *text = NULL;
	int have = sm_number(arch);
	size_t i, found = 0;

	for (i = 0; i < n; i++) {
		int wants = sm_number(images[i].arch);

		if (strcmp(images[i].kind, "ptx")) {
			if (!exact && !strcmp(images[i].arch, arch))
				exact = &images[i];
		} else if (wants && wants <= have && (!text || wants > sm_number(text->arch))) {
			text = &images[i];
		}
	}
	if (exact)
		best[found++] = exact;
	if (text)
		best[found++] = text;
	return found;
}

void vendor_archs(const struct device_image *images, size_t n, char *text, size_t size)
{
	size_t at = 0, i;

	text[0] = '\0';
	for (i = 0; i < n && at < size; i++) {
		int wrote = snprintf(text + at, size - at, "%s%s %s", i ? ", " : "", images[i].arch,
			images[i].kind);

		at += wrote < 0 ? size : (size_t)wrote;
	}
}

int vendor_kernels_find(struct vendor_kernels *kernels, bool whole_units,
	int (*find)(void *ctx, const char *name, void **handle), void *ctx)
{
	struct vendor_kernels found = { .n = ARRAY_SIZE(library_kernels) -
			(whole_units ? 0 : WHOLE_KERNELS) };
	size_t i;

	for (i = 0; i < found.n; i++) {
		int rc = find(ctx, library_kernels[i]->name, &found.handle[i]);

		if (rc < 0)
			return rc;
	}
	*kernels = found;
	return 0;
}

void *vendor_kernel(const struct vendor_kernels *kernels, const struct kernel *k,
	const char *backend, const char *arch, int *code)
{
	char archs[192];
	size_t i;

	for (i = 0; i < kernels->n; i++) {
		if (library_kernels[i] == k)
			return kernels->handle[i];
	}
	if (kernels->n) {
		*code = fail(
			-ENOENT, "%s: launch: the library has no kernel '%s'", backend, k->name);
	} else if (!device_image_count) {
		*code = fail(SPMT_ERR_UNSUPPORTED,
			"%s: launch of '%s': this library was built without device images", backend,
			k->name);
	} else {
		vendor_archs(device_images, device_image_count, archs, sizeof(archs));
		*code = fail(SPMT_ERR_UNSUPPORTED,
			"%s: launch of '%s': no image for %s in this library, which has %s",
			backend, k->name, arch, archs);
	}
	return NULL;
}

/* nanosleep() is a cancellation point, and no wait of the library is one. */
static void sleep_ns(int64_t ns)
{
	struct timespec ts = { .tv_nsec = (long)ns };
	UNCANCELLED;

	nanosleep(&ts, NULL);
}

/* An eighth of the time waited so far: the end of a long wait is seen late by at most that
   share, and by 1 ms. */
static void wait_step(int64_t waited, int64_t left, int *yields)
{
	int64_t ns = waited / 8;

	if (waited < SPIN_NS)
		return;
	if ((*yields)++ < YIELDS) {
		sched_yield();
		return;
	}
	ns = MAX_OF(ns, SLEEP_MIN_NS);
	ns = MIN_OF(ns, SLEEP_MAX_NS);
	sleep_ns(MIN_OF(ns, left));
}

int vendor_wait(int (*query)(void *ctx), void *ctx, int64_t timeout_ns, const uint32_t *stop)
{
	int64_t start = 0, now, left;
	int rc, yields = 0;

	for (;;) {
		rc = query(ctx);
		if (rc)
			return rc < 0 ? rc : 0;
		if (stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE))
			return -ECANCELED;
		now = process_now();
		if (!start)
			start = now;
		left = timeout_ns < 0 ? SLEEP_MAX_NS : timeout_ns - (now - start);
		if (left <= 0)
			return -ETIMEDOUT;
		wait_step(now - start, left, &yields);
	}
}

int vendor_overlap(void *dst, const void *src, size_t n,
	int (*copy)(void *ctx, void *dst, const void *src, size_t n), void *ctx)
{
	char *to = dst;
	const char *from = src;
	bool down = (uintptr_t)dst > (uintptr_t)src;
	size_t step = down ? (uintptr_t)dst - (uintptr_t)src : (uintptr_t)src - (uintptr_t)dst;
	size_t done, piece;
	int rc;

	if (n / step >= PIECES_MAX)
		return -E2BIG;
	for (done = 0; done < n; done += piece) {
		size_t at;

		piece = MIN_OF(step, n - done);
		at = down ? n - done - piece : done;
		rc = copy(ctx, to + at, from + at, piece);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int vendor_range_add(struct vendor_ranges *ranges, const struct vendor_range *range)
{
	struct vendor_range *copy = mem_calloc(1, sizeof(*copy));

	if (!copy)
		return fail(
			-ENOMEM, "no memory for the record of a mapping of %zu bytes", range->size);
	*copy = *range;
	copy->refs = 1;
	pthread_mutex_lock(&ranges->lock);
	copy->next = ranges->first;
	ranges->first = copy;
	pthread_mutex_unlock(&ranges->lock);
	return 0;
}

bool vendor_range_find(struct vendor_ranges *ranges, const void *ptr, struct vendor_range *out)
{
	struct vendor_range *r;

	pthread_mutex_lock(&ranges->lock);
	for (r = ranges->first; r; r = r->next) {
		if ((uintptr_t)ptr - (uintptr_t)r->base < r->size)
			break;
	}
	if (r)
		*out = *r;
	pthread_mutex_unlock(&ranges->lock);
	return r != NULL;
}

void *vendor_range_share(struct vendor_ranges *ranges, int dev, const unsigned char key[64])
{
	struct vendor_range *r;
	void *base = NULL;

	pthread_mutex_lock(&ranges->lock);
	for (r = ranges->first; r && !base; r = r->next) {
		if (r->import && !r->handle && r->dev == dev &&
			!memcmp(r->key, key, sizeof(r->key))) {
			r->refs++;
			base = r->base;
		}
	}
	pthread_mutex_unlock(&ranges->lock);
	return base;
}

bool vendor_range_drop(struct vendor_ranges *ranges, const void *base, size_t size, int dev,
	bool import, struct vendor_range *out, bool *found)
{
	struct vendor_range **at, *r;
	bool last = false;

	pthread_mutex_lock(&ranges->lock);
	for (at = &ranges->first; (r = *at); at = &r->next) {
		if (r->base == base && r->dev == dev && r->import == import &&
			(!size || size == r->size))
			break;
	}
	if (r && !--r->refs) {
		*at = r->next;
		last = true;
	}
	pthread_mutex_unlock(&ranges->lock);
	*found = r != NULL;
	if (last) {
		*out = *r;
		mem_free(r);
	}
	return last;
}

void vendor_lower(char *text)
{
	for (; *text; text++) {
		if (*text >= 'A' && *text <= 'Z')
			*text = (char)(*text - 'A' + 'a');
	}
}

int vendor_numa(const char *pci)
{
	char path[96], text[16] = "";
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	return got > 0 ? (int)strtol(text, NULL, 10) : -1;
}
