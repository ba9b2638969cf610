/* SPDX-License-Identifier: MIT */
/*
 * libspmt inside kernels: one header for hipcc, nvcc, NVRTC, hiprtc, clang (hip, cuda, and C for
 * amdgcn and nvptx) and host C and C++, where one thread is a block of one. No vendor header, no
 * libc. spmt_device_all.h is the same as one file, for compilers that take a header as a string.
 *
 * A kernel gets `struct spmt_view` by value (spmt_view_get) and passes its address to every call.
 *
 * Addresses
 *   The remote side (dst of put, src of get, sig, target of an atomic) is this rank's symmetric
 *   address of the block meant on pe, as on the host. The local side is any memory the thread can
 *   reach, its stack and the block's shared memory included. Nothing is checked here but by
 *   spmtd_ptr and spmtd_mem_ptr: pe is a rank of the world that spmtd_ptr does not refuse, and the
 *   range lies in the heap (or buffer), not in one block of it: with SPMT_CHECK (spmt.h, "Checking")
 *   the library finds later what was written behind a block. On GPUs the two sides of a copy may not
 *   overlap; on the host they may.
 *
 * Scopes
 *   No suffix: the calling thread alone. _warp, _block: called by all threads of the warp
 *   (wavefront) or block with equal arguments, who share the work; such a call synchronizes those
 *   threads, so that their earlier writes are sent, and all of them may read what arrived afterwards. _nbi forms need not be that on return: quiet of the same scope completes them.
 *   In C, clang (seen with 19) may duplicate a call of a program's function in which threads meet, one
 *   for each path to it: compile with -fconvergent-functions, or declare such
 *   functions __attribute__((convergent)). CUDA and HIP do by themselves.
 *
 * Order (OpenSHMEM 1.5)
 *   fence orders this thread's earlier puts, signals and atomics to each pe before its later ones.
 *   A warp's fence orders those of all its threads before their later ones; a block's orders those of
 *   all its threads before later ones of its first warp, and a thread of another warp, which has not
 *   fenced, calls fence before its own.
 *   quiet completes them. A signal comes after its data, also for 0 bytes. A naturally aligned put
 *   or get of 1, 2, 4 or 8 bytes, and _p and _g, is one atomic access. Atomics order nothing by
 *   themselves. barrier is quiet, then sync; sync alone orders nothing of the calling ranks, but
 *   what they completed by a quiet of the same scope before it is seen after it.
 *
 * Peers without an address
 *   spmtd_ptr is NULL for a peer that kernels do not load from or store to, as one on another node. The same calls work there: the
 *   calling thread posts its request to the host (fifo.h), where a thread has a NIC do it. The local side is then memory of the
 *   device or the heap, not a thread's stack or shared memory; _p and _g, signals and atomics carry values. Blocking puts and gets
 *   wait for the host, as quiet and barrier do, which cover all that this rank's kernels have posted. Where the ring of posts is full a call waits;
 *   a request that finds no place before the deadline is not done, and the rank's next quiet or barrier, by any thread, returns the code. The same holds
 *   for a blocking put, a get or a fetch that the host had not done by then: it may have moved nothing, and the host may still read or write the local side.
 *   A post that fails breaks the world. Atomics
 *   have 4 or 8 bytes there, and of half and bfloat16 there are sums alone; reductions, packets that are sent on and bulk copies from shared memory are refused (SPMTD_UNSUPPORTED, or
 *   the world breaks where a call returns nothing). Registered buffers are reached by the same calls, and spmtd_mem_ptr is NULL.
 *
 *   Near: with SPMT_NEAR defined before the first include, there are no such peers: spmt_view_get and spmt_mem_view_get refuse a world that
 *   has some (SPMT_ERR_UNSUPPORTED), the structures end earlier, and no call contains code that posts, which makes a sync or barrier by one
 *   thread of an NVIDIA GPU 0.1 us shorter and a get by a block up to 0.2 us. Compile both the kernels and the code that fills their views with it.
 *
 *   A packet (packet.h) orders nothing but itself, and needs no order: its data come with its flag. Lines, which are larger, are refused there.
 *
 * Copy engines
 *   spmtd_sdma_put and _signal (sdma.h) are done by an engine that the kernel feeds, where there is one, and else like any put and
 *   signal. quiet, fence and barrier cover them; the end of a kernel does not.
 *
 * Waiting
 *   Words that are waited for are this rank's own copies. A wait acquires: what was put before the
 *   signal it saw is seen. Every wait ends at the view's deadline (SPMTD_TIMEOUT) or when the world
 *   breaks (SPMTD_ABORTED), returns 0 or such a code, and the first that fails leaves a record that
 *   spmt_last_error reads. Deadlines are kept by the constant-rate counter: %globaltimer on NVIDIA,
 *   s_memrealtime on AMD (25 MHz up to MI200, 100 MHz else); on the host by the library.
 */
#ifndef SPMT_DEVICE_H
#define SPMT_DEVICE_H

/* Each part stands alone. Who is where, and order, are in view.h, on which all of these are built. */
#include "spmt_device/rma.h"
#include "spmt_device/strided.h"
/* atomics */
#include "spmt_device/atomic.h"
/* waits */
#include "spmt_device/wait.h"
#include "spmt_device/waitby.h"
/* packets */
#include "spmt_device/packet.h"
/* barrier and sync */
#include "spmt_device/sync.h"
/* collectives */
#include "spmt_device/coll.h"
/* channels, switch channels, ports */
#include "spmt_device/channel.h"
#include "spmt_device/port.h"
#include "spmt_device/switch.h"
/* copy engines fed by kernels */
#include "spmt_device/sdma.h"
/* bulk copies */
#include "spmt_device/bulk.h"

#endif
