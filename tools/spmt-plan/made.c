/* SPDX-License-Identifier: MIT */
#include "made.h"

#include <errno.h>
#include <string.h>

const char made_names[] = "allreduce, allreduce-packets, allgather, reducescatter, alltoall";

/* All ranks tell each other: every buffer is free, or filled. */
static int all_meet(spmt_plan *plan, int n, int rank, int index)
{
	int rc = 0;

	for (int p = 1; p < n && !rc; p++)
		rc = spmt_plan_signal(plan, rank, 0, (rank + p) % n, index);
	for (int p = 1; p < n && !rc; p++)
		rc = spmt_plan_wait(plan, rank, 0, (rank + p) % n, index);
	return rc;
}

/* Chunk `rank` of everybody's, SPMT_PLAN_TERMS at a time. */
static int fold_chunk_of_all(spmt_plan *plan, int n, int rank)
{
	uint32_t at = (uint32_t)rank;
	struct spmt_plan_chunk terms[SPMT_PLAN_TERMS];
	int rc = 0;

	terms[0] = spmt_plan_output(rank, at, 1);
	for (int p = 1; p < n && !rc;) {
		int k = 1;

		for (; k < SPMT_PLAN_TERMS && p < n; k++, p++)
			terms[k] = spmt_plan_output((rank + p) % n, at, 1);
		rc = spmt_plan_reduce(plan, rank, 0, terms[0], terms, k);
	}
	for (int p = 1; p < n && !rc; p++)
		rc = spmt_plan_put(
			plan, rank, 0, terms[0], spmt_plan_output((rank + p) % n, at, 1));
	return rc;
}

static int make_all_reduce(spmt_plan *plan, int n, int rank)
{
	int rc = fold_chunk_of_all(plan, n, rank);

	return rc ? rc : all_meet(plan, n, rank, 0);
}

/* Everybody's data comes to everybody as packets: scratch chunk r is from rank r. */
static int make_all_reduce_packets(spmt_plan *plan, int n, int rank)
{
	struct spmt_plan_chunk terms[SPMT_PLAN_TERMS];
	int rc = 0;

	terms[0] = spmt_plan_output(rank, 0, 1);
	for (int p = 1; p < n && !rc; p++)
		rc = spmt_plan_put_packets(plan, rank, 0, terms[0],
			spmt_plan_scratch((rank + p) % n, (uint32_t)rank, 1));
	for (int p = 1; p < n && !rc;) {
		int k = 1;

		for (; k < SPMT_PLAN_TERMS && p < n; k++, p++)
			terms[k] = spmt_plan_scratch(rank, (uint32_t)((rank + p) % n), 1);
		rc = spmt_plan_reduce_packets(plan, rank, 0, terms[0], terms, k);
	}
	return rc;
}

/* Chunk `rank` of all inputs, SPMT_PLAN_TERMS at a time. */
static int make_reduce_scatter(spmt_plan *plan, int n, int rank)
{
	uint32_t at = (uint32_t)rank;
	struct spmt_plan_chunk terms[SPMT_PLAN_TERMS], out = spmt_plan_output(rank, 0, 1);
	int rc = 0;

	terms[0] = spmt_plan_input(rank, at, 1);
	for (int p = 1, k; !rc && (p == 1 || p < n); terms[0] = out) {
		for (k = 1; k < SPMT_PLAN_TERMS && p < n; k++, p++)
			terms[k] = spmt_plan_input((rank + p) % n, at, 1);
		rc = spmt_plan_reduce(plan, rank, 0, out, terms, k);
		if (n == 1)
			break;
	}
	return rc;
}

/* Each block of two puts to every other peer. */
static int make_puts(spmt_plan *plan, int n, int rank, int gathers)
{
	uint32_t own = (uint32_t)rank;
	int rc = spmt_plan_copy(plan, rank, 0, spmt_plan_input(rank, gathers ? 0 : own, 1),
		spmt_plan_output(rank, own, 1));

	for (int p = 1; p < n && !rc; p++) {
		int to = (rank + p) % n;

		rc = spmt_plan_put(plan, rank, p % 2,
			spmt_plan_input(rank, gathers ? 0 : (uint32_t)to, 1),
			spmt_plan_output(to, own, 1));
	}
	return rc;
}

static int make_rank(spmt_plan *plan, const char *name, int n, int rank)
{
	if (!strcmp(name, "allreduce"))
		return make_all_reduce(plan, n, rank);
	if (!strcmp(name, "allreduce-packets"))
		return make_all_reduce_packets(plan, n, rank);
	if (!strcmp(name, "reducescatter"))
		return make_reduce_scatter(plan, n, rank);
	return make_puts(plan, n, rank, !strcmp(name, "allgather"));
}

int made_plan(const char *name, int nranks, spmt_plan **plan)
{
	uint32_t n = nranks > 0 ? (uint32_t)nranks : 0;
	int gathers = !strcmp(name, "allgather"), packets = !strcmp(name, "allreduce-packets");
	int reduces = packets || !strcmp(name, "allreduce"),
	    scatters = !strcmp(name, "reducescatter"), rc;
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = name,
		.collective = reduces ? "allreduce" : name,
		.nranks = nranks,
		.in_place = reduces,
		.input_chunks = packets || gathers ? 1 : n,
		.output_chunks = packets || scatters ? 1 : n,
		.scratch_chunks = packets ? n : 0 };

	if (!reduces && !gathers && !scatters && strcmp(name, "alltoall"))
		return -ENOENT;
	rc = spmt_plan_create(&attr, plan);
	for (int r = 0; r < nranks && !rc; r++) {
		rc = make_rank(*plan, name, nranks, r);
		if (rc)
			spmt_plan_destroy(*plan);
	}
	return rc;
}

/* ---- what they do ----------------------------------------------------------------------------- */

uint32_t made_input(int rank, size_t i)
{
	return (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank + 1) * 0x9e3779b9u;
}

static uint32_t sum_of(int nranks, size_t i)
{
	uint32_t sum = 0;

	for (int r = 0; r < nranks; r++)
		sum += made_input(r, i);
	return sum;
}

/* Whether input and output are as large as the collective's; in place of an allreduce one may be left out. */
static int shaped(const struct spmt_plan_attr *a)
{
	uint64_t n = (uint64_t)a->nranks, in = a->input_chunks, out = a->output_chunks;

	if (!strcmp(a->collective, "allreduce"))
		return in == out || (a->in_place && (!in || !out));
	if (!strcmp(a->collective, "allgather"))
		return in && out == in * n;
	if (!strcmp(a->collective, "reducescatter"))
		return out && in == out * n;
	return in == out && in % n == 0;
}

int made_right(const struct spmt_plan_attr *a, int rank, size_t elements, const uint32_t *out)
{
	size_t n = (size_t)a->nranks, part = elements / n, me = (size_t)rank;
	int wrong = 0;

	if (!shaped(a))
		return -1;
	if (!strcmp(a->collective, "allreduce"))
		for (size_t i = 0; i < elements; i++)
			wrong |= out[i] != sum_of(a->nranks, i);
	else if (!strcmp(a->collective, "reducescatter"))
		for (size_t i = 0; i < part; i++)
			wrong |= out[i] != sum_of(a->nranks, me * part + i);
	else if (!strcmp(a->collective, "allgather"))
		for (size_t i = 0; i < n * elements; i++)
			wrong |= out[i] != made_input((int)(i / elements), i % elements);
	else if (!strcmp(a->collective, "alltoall"))
		for (size_t i = 0; i < n * part; i++)
			wrong |= out[i] != made_input((int)(i / part), me * part + i % part);
	else
		return -1;
	return !wrong;
}
