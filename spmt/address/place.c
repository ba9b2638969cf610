/* SPDX-License-Identifier: MIT */
#include "place.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static bool address_is_sound(const struct place_address *a)
{
	return (a->family == AF_INET || a->family == AF_INET6) && !a->zero && !address_is_local(a);
}

bool place_is_sound(const struct uid_place *place)
{
	static const struct place_address none;

	for (int i = 0; i < PLACE_ADDRESSES; i++)
		if (i < place_count(place) ? !address_is_sound(&place->at[i])
					   : memcmp(&place->at[i], &none, sizeof(none)) != 0)
			return false;
	return true;
}

int place_count(const struct uid_place *place)
{
	int n = 0;

	while (n < PLACE_ADDRESSES && place->at[n].family)
		n++;
	return n;
}

bool place_has(const struct uid_place *place, const struct place_address *address)
{
	for (int i = 0; i < place_count(place); i++)
		if (!memcmp(&place->at[i], address, sizeof(*address)))
			return true;
	return false;
}

/* Unless it has it, or is full. */
void place_add(struct uid_place *place, const struct place_address *address)
{
	int n = place_count(place);

	if (n < PLACE_ADDRESSES && !place_has(place, address))
		place->at[n] = *address;
}

void place_text(const struct uid_place *place, char text[PLACE_TEXT])
{
	size_t used = 0;

	*text = '\0';
	for (int i = 0; i < place_count(place); i++) {
		char number[INET6_ADDRSTRLEN];

		address_text(&place->at[i], number);
		used += (size_t)snprintf(
			text + used, PLACE_TEXT - used, "%s%s", i ? ", " : "", number);
	}
}

uint16_t place_port(uint16_t first, int i)
{
	return (uint16_t)(PLACE_PORT_LEAST +
		(first - PLACE_PORT_LEAST + i * 1571) % PLACE_PORT_COUNT);
}

bool address_is_local(const struct place_address *a)
{
	return a->family == AF_INET6 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

socklen_t address_name(const struct place_address *address, uint16_t port, union place_name *name)
{
	memset(name, 0, sizeof(*name));
	name->any.sa_family = address->family;
	if (address->family == AF_INET) {
		name->in.sin_port = htons(port);
		memcpy(&name->in.sin_addr, address->bytes, sizeof(name->in.sin_addr));
		return sizeof(name->in);
	}
	name->in6.sin6_port = htons(port);
	memcpy(&name->in6.sin6_addr, address->bytes, sizeof(name->in6.sin6_addr));
	return sizeof(name->in6);
}

void address_of(const struct sockaddr *any, struct place_address *address)
{
	union place_name name;

	*address = (struct place_address){ .family = 0 };
	if (any->sa_family == AF_INET) {
		memcpy(&name.in, any, sizeof(name.in));
		memcpy(address->bytes, &name.in.sin_addr, sizeof(name.in.sin_addr));
	} else if (any->sa_family == AF_INET6) {
		memcpy(&name.in6, any, sizeof(name.in6));
		memcpy(address->bytes, &name.in6.sin6_addr, sizeof(name.in6.sin6_addr));
	} else {
		return;
	}
	address->family = any->sa_family;
}

void address_text(const struct place_address *address, char text[INET6_ADDRSTRLEN])
{
	if (!inet_ntop(address->family, address->bytes, text, INET6_ADDRSTRLEN))
		snprintf(text, INET6_ADDRSTRLEN, "?");
}
