/* SPDX-License-Identifier: MIT */
#include "dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "socket.h"
#include "src/base/status.h"
#include "tcp.h"

#define AGAIN_NS 2000000ll /* before the next port; grows by as much, up to .. */
#define AGAIN_MOST 10	   /* .. so many times */

void dial_open(struct dial *d, const struct uid_place *place, uint16_t port,
	const struct dial_greeting *greeting)
{
	*d = (struct dial){
		.place = place, .greeting = greeting, .port = port, .n = place_count(place)
	};
	for (int i = 0; i < PLACE_ADDRESSES; i++)
		d->lines[i].fd = d->lines[i].slot = -1;
}

static void line_close(struct dial_line *line)
{
	if (line->fd >= 0)
		close(line->fd);
	line->fd = line->slot = -1;
}

void dial_begin(struct dial *d, int64_t now)
{
	dial_stop(d);
	for (int i = 0; i < d->n; i++) {
		d->lines[i].called = false;
		d->lines[i].at = now + i * DIAL_STAGGER_NS;
	}
}

void dial_stop(struct dial *d)
{
	for (int i = 0; i < d->n; i++)
		line_close(&d->lines[i]);
}

int64_t dial_until(const struct dial *d)
{
	int64_t until = INT64_MAX;

	for (int i = 0; i < d->n; i++)
		until = MIN_OF(until, d->lines[i].at);
	return until;
}

size_t dial_poll(struct dial *d, struct pollfd *set, size_t n, size_t most)
{
	for (int i = 0; i < d->n; i++) {
		struct dial_line *line = &d->lines[i];

		line->slot = -1;
		if (line->fd < 0 || n >= most)
			continue;
		line->slot = (int)n;
		set[n++] = (struct pollfd){ .fd = line->fd,
			.events = line->taken ? POLLIN : POLLIN | POLLOUT };
	}
	return n;
}

/* ---- one line ---------------------------------------------------------------------------------- */

/* The next address that has not been called yet is called by then. */
static void hasten(struct dial *d, int after, int64_t at)
{
	int i = after + 1;

	while (i < d->n && d->lines[i].called)
		i++;
	if (i < d->n)
		d->lines[i].at = at;
}

/* err 0: by silence. The next port gets its turn. */
static void line_failed(struct dial *d, int i, int err, int64_t now)
{
	struct dial_line *line = &d->lines[i];

	line_close(line);
	line->err = err;
	line->tries++;
	line->at = now + MIN_OF(line->tries, AGAIN_MOST) * AGAIN_NS;
	hasten(d, i, now);
}

/* Some errors will not go away; a family that this node does not have is one. */
static bool line_is_dead(const struct dial_line *line)
{
	switch (line->err) {
	case 0:
	case ECONNREFUSED:
	case EAGAIN:
	case EINTR:
	case ECONNRESET:
	case ETIMEDOUT:
	case ENETUNREACH:
	case EHOSTUNREACH:
	case EADDRNOTAVAIL:
	case EPROTO:
		return false;
	default:
		return true;
	}
}

/* Poll says that something can be read from so many bytes on. */
static void wait_for(int fd, int bytes)
{
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

/* A negative code: this process is short of something. */
static int line_call(struct dial *d, int i, int64_t now)
{
	struct dial_line *line = &d->lines[i];
	uint16_t port = place_port(d->port, (int)(line->tries % PLACE_PORTS));
	int fd, rc = tcp_call(&d->place->at[i], port, &fd);

	line->called = true;
	line->taken = false;
	if (rc)
		return rc;
	if (fd < 0) {
		line_failed(d, i, -fd, now);
		return 0;
	}
	line->fd = fd;
	line->at = now + DIAL_ANSWER_NS;
	wait_for(fd, (int)d->greeting->size);
	return 0;
}

/* True: a hub has greeted. With less than a greeting to read, as with the end behind it, POLLIN says that no more will come. */
static bool line_look(struct dial *d, int i, short events, int64_t now)
{
	struct dial_line *line = &d->lines[i];
	unsigned char bytes[DIAL_GREETING];
	ssize_t n = recv(line->fd, bytes, d->greeting->size, MSG_PEEK | MSG_DONTWAIT);
	int err = n < 0 ? errno : 0;

	if (n == (ssize_t)d->greeting->size && d->greeting->known(bytes))
		return true;
	if (n > 0 && (n == (ssize_t)d->greeting->size || events & POLLIN))
		line_failed(d, i, EPROTO, now);
	else if (!n)
		line_failed(d, i, ECONNRESET, now);
	else if (err && err != EAGAIN && err != EINTR)
		line_failed(d, i, err, now);
	else if (!line->taken && socket_is_connected(line->fd)) {
		line->taken = true;
		hasten(d, i, now + DIAL_GREET_NS);
	}
	return false;
}

/* ---- all of them ------------------------------------------------------------------------------- */

static int all_dead(const struct dial *d)
{
	char text[STATUS_SENTENCE / 2];

	for (int i = 0; i < d->n; i++)
		if (!line_is_dead(&d->lines[i]))
			return 0;
	dial_say(d, text, sizeof(text));
	return d->n ? fail_call(-d->lines[0].err, "spmt_init",
			      "the rendezvous cannot be called: %s", text)
		    : 0;
}

static int take_over(struct dial *d, int i)
{
	int fd = d->lines[i].fd;

	wait_for(fd, 1);
	d->lines[i].fd = -1;
	d->lines[i].tries++; /* the next time it is another, should this be none */
	d->lines[i].err = 0;
	dial_stop(d);
	return fd;
}

int dial_serve(struct dial *d, const struct pollfd *set, int64_t now, int *fd)
{
	int rc = 0;

	*fd = -1;
	for (int i = 0; i < d->n && !rc; i++) {
		struct dial_line *line = &d->lines[i];

		if (line->fd >= 0 && line->slot >= 0 && set[line->slot].revents &&
			line_look(d, i, set[line->slot].revents, now)) {
			*fd = take_over(d, i);
			return 0;
		}
		if (line->at > now)
			continue;
		if (line->fd >= 0)
			line_failed(d, i, 0, now);
		else
			rc = line_call(d, i, now);
	}
	return rc ? rc : all_dead(d);
}

void dial_say(const struct dial *d, char *text, size_t size)
{
	size_t used = 0;

	*text = '\0';
	for (int i = 0; i < d->n && used < size; i++) {
		const struct dial_line *line = &d->lines[i];
		char number[INET6_ADDRSTRLEN], why[64] = "no answer";
		int n;

		address_text(&d->place->at[i], number);
		if (line->err == EPROTO)
			snprintf(why, sizeof(why), "no process of this library");
		else if (line->err)
			snprintf(why, sizeof(why), "%s", status_text(-line->err));
		n = snprintf(text + used, size - used, "%s%s (%s)", i ? ", " : "", number, why);
		used += n > 0 ? (size_t)n : 0;
	}
}
