/* SPDX-License-Identifier: MIT */
/* Any bytes as environment: names by position, values as they come. What parses must keep its promises. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
	char *at, *end;
};

/* The next line of the input. */
static const char *next_value(const char *name, void *ctx)
{
	struct values *v = ctx;
	char *value = v->at;
	char *stop = memchr(value, '\n', (size_t)(v->end - value));

	(void)name;
	if (value == v->end)
		return NULL;
	if (!stop)
		stop = v->end;
	*stop = '\0';
	v->at = stop == v->end ? stop : stop + 1;
	return value;
}

static void check_env(const struct env *env)
{
	if (env->heap_mode < ENV_HEAP_AUTO || env->heap_mode > ENV_HEAP_VMM || env->channels < 1 ||
		env->channels > 8 || env->host_devices < 0 || env->host_devices > 4096)
		abort();
	if (env->maps && env_list_rank(env->maps, "p2p", 0) > 64 + (int)strlen(env->maps))
		abort();
	if (env->timeout > INT64_MAX / 1000000)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct env env;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!env_parse(next_value, &(struct values){ text, text + size }, &env))
		check_env(&env);
	else if (!*status_sentence())
		abort();
	free(text);
	return 0;
}
