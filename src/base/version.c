/* SPDX-License-Identifier: MIT */
#include "include/spmt.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *spmt_version(void)
{
	return TEXT(SPMT_VERSION_MAJOR) "." TEXT(SPMT_VERSION_MINOR) "." TEXT(SPMT_VERSION_PATCH);
}

int spmt_version_number(void)
{
	return SPMT_VERSION_NUMBER;
}
