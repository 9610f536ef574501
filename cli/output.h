/* The forms that a verb can print in: what -o takes, and sandboxes and commands as JSON. Main
 * thread. */
#pragma once

#include "client/sandstorm.h"
#include "common/err.h"

#include <jansson.h>

enum output {
    OUTPUT_TABLE = 1u << 0, /* also where nothing is said */
    OUTPUT_WIDE = 1u << 1,
    OUTPUT_JSON = 1u << 2,
    OUTPUT_NAME = 1u << 3,
    OUTPUT_TEXT = 1u << 4,
};

/* `allowed` is the set of them that the verb has; `text` NULL is the first of these. */
int output_parse(const char *text, unsigned allowed, enum output *ret, struct err *err) must_use;

/* NULL when there is no memory. */
json_t *output_sandbox(const struct sandstorm_sandbox *sandbox);
json_t *output_command(const struct sandstorm_command *command);
/* On stdout, in ASCII, and lets go of it: an array on many lines, anything else on one. */
void output_json(json_t *value);
