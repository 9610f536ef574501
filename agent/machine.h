/* Which machine this is, so that a copy of it can be told from it: the machine id (made specific to
 * us, as machine-id(5) asks), the firmware's UUID and the cloud's instance id, each where there is
 * one and we may read it. Kept beside the key in machine.json. Blocking, small. Any thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>

#define MACHINE_TEXT_MAX 128u

struct machine {
    char machine_id[MACHINE_TEXT_MAX]; /* "" where there is none */
    char smbios_uuid[MACHINE_TEXT_MAX];
    char instance_id[MACHINE_TEXT_MAX];
};

/* `root` is "" or, in tests, a directory that stands for "/". */
void machine_read(const char *root, struct machine *ret);
int machine_to_json(const struct machine *machine, char **ret, struct err *err) must_use;
int machine_from_json(const char *text, size_t size, struct machine *ret, struct err *err) must_use;
/* False when one that both know differs; *ret_what names it for a person ("machine id"). What only
 * one of them knows does not count: a file that cannot be read any more makes no clone. */
bool machine_same(const struct machine *a, const struct machine *b, const char **ret_what);
