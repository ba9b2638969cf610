/* SPDX-License-Identifier: MIT */
/* Calling a hub on another node, which the client does until it is let in. */
#include <string.h>

#include "client.h"
#include "src/base/process.h"

/* A stranger's server may send as many bytes. */
static bool is_greeting(const void *bytes)
{
	struct wire_header h;
	uint64_t magic;

	memcpy(&h, bytes, sizeof(h));
	memcpy(&magic, (const char *)bytes + sizeof(h), sizeof(magic));
	return h.type == WIRE_CHALLENGE && h.length == sizeof(struct wire_challenge) &&
		magic == WIRE_MAGIC;
}

static const struct dial_greeting greeting = {
	sizeof(struct wire_header) + sizeof(struct wire_challenge), is_greeting
};
_Static_assert(sizeof(struct wire_header) + sizeof(struct wire_challenge) <= DIAL_GREETING,
	"a challenge is a greeting");

void client_search(struct client *c)
{
	const struct bootstrap_config *config = c->config;

	dial_open(&c->dial, &config->uid->place, config->uid->port, &greeting);
	search_begin(&c->search, config->uid, config->only_tcp, config->rank);
}

void client_hang_up(struct client *c)
{
	dial_stop(&c->dial);
	conn_close(&c->conn);
}

void client_call(struct client *c, const struct uid_place *here)
{
	client_hang_up(c);
	c->state = CLIENT_CALLING;
	c->place = *here;
	dial_begin(&c->dial, process_now());
}

void client_calls(struct client *c, const struct pollfd *set)
{
	struct meeting met;
	int fd, rc;

	if (c->state != CLIENT_CALLING)
		return;
	rc = dial_serve(&c->dial, set, process_now(), &fd);
	if (rc) {
		client_fail(c, rc);
		client_postpone(c); /* to tell it */
	} else if (fd >= 0) {
		met = meeting_at(fd, 0, true);
		client_connect(c, &met);
	}
}
