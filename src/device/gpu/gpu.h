/* SPDX-License-Identifier: MIT */
/* The backends of AMD's and NVIDIA's devices are one; struct gpu_vendor has what differs. A sentence
   begins with the backend's name and keeps the vendor's words for an error. */
#ifndef SPMT_GPU_H
#define SPMT_GPU_H

#include <stdatomic.h>

#include "calls.h"
#include "src/device/kept.h"

/* Whether ranges are backed on demand, and whether that memory can be named to other processes. */
enum gpu_vmm { GPU_VMM_UNASKED, GPU_VMM_NO, GPU_VMM_PRIVATE, GPU_VMM_SHARED };

struct gpu_device {
	struct kept kept; /* the first member: kept's callbacks get it alone */
	const struct gpu_vendor *vendor;
	int handle;	  /* the vendor's number of it */
	int units;	  /* multiprocessors, or compute units */
	void *context;	  /* kept too; NULL where the vendor has none */
	enum gpu_vmm vmm; /* under the state's vmm_lock */
};

/* Zeros in a forked child: nothing is loaded there. A vendor's own entry points follow it. */
struct gpu_state {
	pthread_mutex_t lock; /* guards loading */
	bool entered;	      /* Init was called in this process */
	bool loaded;
	int verdict; /* why not, for good */
	char sentence[256];
	struct gpu_calls calls;
	unsigned int ipc_flags; /* for lazy peer access */
	bool import_by_address; /* a descriptor to import is named by its address */
	int count;
	struct gpu_device *devices;
	struct kept_opens opens;
	/* round every call that changes mappings, where the vendor's are not safe against each other */
	pthread_mutex_t vmm_lock;
	/* held from the look-up of an import to its record, driver calls included */
	pthread_mutex_t import_lock;
	struct vendor_ranges ranges;
	struct vendor_ranges padded; /* reservations with room for their alignment */
};

/* A vendor's mutable state. */
struct gpu_root {
	void *_Atomic slot;
	/* the driver was initialised here or in the process that forked this one */
	bool _Atomic entered;
};

struct gpu_bound; /* bind.h */

/* The thread's last error. The state may not be loaded yet. */
struct gpu_errors {
	int (*peek)(const struct gpu_state *state);
	void (*put_back)(const struct gpu_state *state, int want);
};
struct gpu_contexts {
	int (*retain)(struct gpu_device *d);
	void (*release)(struct gpu_device *d);
};

/* The few real differences. Functions give the vendor's result unless they say otherwise. */
struct gpu_vendor {
	struct gpu_root *root;
	size_t state_size;
	const char *name, *kind, *product; /* for sentences: cuda, driver, NVIDIA driver */
	const char *variable, *visible;	   /* the environment's: names the library; hides devices */
	const char *no_vmm, *no_export;	   /* the end of a sentence */
	const char *const *libraries;
	size_t library_count;
	const struct vendor_symbol *symbols;
	size_t symbol_count;
	int attr_units, attr_words, p2p_access, p2p_atomics;
	unsigned int host_flags; /* of pinned memory */
	int memory_type;	 /* of a commit */
	void *launch_end;
	device_stream legacy; /* its value of DEVICE_STREAM_LEGACY */
	bool streams_know; /* one that is no default one is asked in any context, and takes work while another thread captures */
	bool reserve_needs_vmm;	 /* reserve() promises what commit() cannot hold */
	bool one_mapping_a_time; /* calls that change mappings are not safe against each other */
	bool whole_units;	 /* kernels access 16 aligned bytes at once */
	bool uuid_may_lack;	 /* then it is "XX", and the place on the bus stands for it */

	const struct gpu_errors *errors; /* NULL: no call leaves the thread an error */
	const struct gpu_contexts
		*contexts; /* NULL: a device needs none. Of a closed device there is none */

	int (*find)(struct gpu_state *state); /* fills calls; a code with a sentence */
	int (*start)(struct gpu_state *state, int *count);
	int (*find_device)(struct gpu_state *state, struct gpu_device *d); /* handle and arch */
	void (*texts)(
		const struct gpu_state *state, int result, const char **name, const char **text);
	int (*push)(struct gpu_bound *b);
	void (*pop)(const struct gpu_bound *b);
	int (*enter)(
		const struct gpu_state *state, struct gpu_device *d, struct device_saved *saved);
	void (*leave)(const struct gpu_state *state, const struct device_saved *saved);
	int (*peer_enable)(const struct gpu_bound *b, const struct gpu_device *peer);
	int (*alloc_symmetric)(
		const struct gpu_state *state, size_t size, void **ptr); /* NULL: as plain */
	enum gpu_vmm (*ask_vmm)(const struct gpu_bound *b);
	int (*copy)(
		const struct gpu_state *state, void *dst, const void *src, size_t n, void *stream);
	int (*fill)(const struct gpu_state *state, void *dst, int byte, size_t n, void *stream);
	int (*call)(const struct gpu_state *state, void *stream, void (*fn)(void *arg), void *arg);
	/* NULL, or the image that is loaded and the runtime have it: a kernel's launch before what is ahead of it has ended */
	bool (*launches_early)(const struct gpu_bound *b);
	int (*launch_early)(const struct gpu_bound *b, void *function, unsigned grid,
		unsigned block, void *stream, void **extra);
	int (*word_write)(const struct gpu_state *state, void *stream, void *word, uint64_t value);
	int (*word_wait)(const struct gpu_state *state, void *stream, void *word, uint64_t value);
	bool (*has_words)(const struct gpu_state *state); /* the runtime has these two */
};

extern const struct gpu_vendor hip_vendor;	  /* hip.c */
extern const struct device_sdma_ops hip_sdma_ops; /* hip_sdma.c */

/* NULL with a sentence where load() has not succeeded in this process. */
struct gpu_state *gpu_unloaded(const struct gpu_vendor *v) __attribute__((cold));
static inline struct gpu_state *gpu_state(const struct gpu_vendor *v)
{
	struct gpu_state *state = atomic_load_explicit(&v->root->slot, memory_order_acquire);

	return LIKELY(state && state->loaded) ? state : gpu_unloaded(v);
}
/* The device, open or not; NULL with a sentence for an ordinal that there is not. */
struct gpu_device *gpu_device(const struct gpu_vendor *v, int dev, const char *what);
/* The code for a result, which is not GPU_OK, and the sentence: the words given, the vendor's. */
int gpu_fail(const struct gpu_vendor *v, int result, const char *fmt, ...) PRINTF(3, 4)
	__attribute__((cold));
/* Opens the vendor's library, or the one at `path`, and fills `api`. */
int gpu_bind_library(const struct gpu_vendor *v, const char *path, void *api);

#endif
