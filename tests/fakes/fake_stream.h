/* SPDX-License-Identifier: MIT */
/* The streams of the stand-ins: one thread each, in order. */
#ifndef SPMT_TESTS_FAKE_STREAM_H
#define SPMT_TESTS_FAKE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_ARGS 4096

struct fake_stream;
struct fake_event;
struct fake_op {
	struct fake_op *next;
	void (*run)(struct fake_op *op);
	void *dst;
	const void *src;
	size_t n;
	uint64_t value;
	int byte;
	void (*fn)(void *arg);
	void (*fn_status)(void *stream, int status, void *arg);
	void (*kernel)(const void *args);
	void *arg;
	struct fake_event *event;
	_Alignas(16) unsigned char args[FAKE_ARGS];
};

bool fake_stream_new(int dev, struct fake_stream **out);
bool fake_stream_valid(const struct fake_stream *s);
/* Work queued still runs. */
void fake_stream_end(struct fake_stream *s);
void fake_streams_end(int dev); /* and events */
/* The default streams of a device: 1 legacy, 2 per thread. */
struct fake_stream *fake_stream_default(int dev, int which);
int fake_stream_dev(const struct fake_stream *s);
uint64_t fake_stream_id(const struct fake_stream *s); /* no other's, ever */
bool fake_stream_idle(struct fake_stream *s);
/* Waits for a device's work, 10 s at most, and nobody queues more meanwhile: so does what frees
   memory. */
void fake_drain(int dev);
/* 20 ms for what is about to end: this unmap waits for nobody, but who is still at work there would
   take the process down. */
void fake_settle(int dev);
bool fake_stream_push(struct fake_stream *s, const struct fake_op *op);

struct fake_event *fake_event_new(int dev);
bool fake_event_valid(const struct fake_event *e);
void fake_event_end(struct fake_event *e);
bool fake_event_done(struct fake_event *e);
/* A capture is under way, and the event was recorded before it: waiting for it would break the capture. */
bool fake_event_isolated(const struct fake_event *e);
int fake_event_dev(const struct fake_event *e);
bool fake_record(struct fake_event *e, struct fake_stream *s);
bool fake_wait_event(struct fake_stream *s, struct fake_event *e);
bool fake_copy(struct fake_stream *s, void *dst, const void *src, size_t n);
/* Words: stores one, waits until it, as a signed number, is not below value. */
bool fake_word(struct fake_stream *s, void *word, uint64_t value, bool wait);
bool fake_set(struct fake_stream *s, void *dst, int byte, size_t n);

#endif
