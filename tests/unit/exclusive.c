/* SPDX-License-Identifier: MIT */
/* Who has a comm to himself, while another thread ends it. */
#include <criterion/criterion.h>

#include "spmt/control/exclusive.h"

/* A lane has come to the comm's place, on which calls come at once. */
Test(exclusive, given_back_as_it_was_taken)
{
	struct object object = { .state = OBJECT_CHECKED, .looks = { .alone = true } };
	struct object *taken = exclusive_begin(&object, "spmt_barrier");

	cr_assert_eq(taken, &object);
	cr_assert_neq(object.owner, 0);
	object.looks.alone = false;
	exclusive_end(&taken);
	cr_expect_eq(object.owner, 0);
}

/* .. or another thread has that by now. */
Test(exclusive, nothing_of_others_is_given_back)
{
	struct object object = { .state = OBJECT_CHECKED, .looks = { .alone = true } };
	struct object *taken = exclusive_begin(&object, "spmt_barrier");

	cr_assert_eq(taken, &object);
	object.owner = 1;
	exclusive_end(&taken);
	cr_expect_eq(object.owner, 1);
}

Test(exclusive, nobody_has_a_new_one)
{
	struct object_pool pool = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct object *object = object_take(&pool, sizeof(*object));

	cr_assert_not_null(object);
	object->owner = 1;
	object_give(&pool, object);
	cr_assert_eq(object_take(&pool, sizeof(*object)), object);
	cr_expect_eq(object->owner, 0);
}
