/* Names that cross a trust boundary. A sandbox id is a DNS label, a command id a lower-case UUID,
 * and nothing else passes: what passes is safe in a log line. None becomes a path, but for one: the
 * runner keeps a command in a file of its id's name, in a directory that is its own. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define SANDBOX_ID_MAX  63
#define CLIENT_NAME_MAX 63
#define COMMAND_ID_LEN  36
#define VM_ID_MAX       255

struct command_id {
    char text[COMMAND_ID_LEN + 1];
};

/* [a-z0-9] with inner dashes, 1 to 63 characters. The text says what is allowed. */
int sandbox_id_check(const char *text, struct err *err) must_use;
/* As a sandbox id, with inner dots, underscores and upper case allowed too. */
int client_name_check(const char *text, struct err *err) must_use;
/* Printable ASCII without spaces, 1 to 255 characters. */
int vm_id_check(const char *text, struct err *err) must_use;

int command_id_parse(const char *text, struct command_id *ret, struct err *err) must_use;
/* A random version 4 UUID. */
int command_id_new(struct command_id *ret, struct err *err) must_use;
/* getrandom(2) for jitter and the like; aborts only where the kernel has no randomness at all. */
uint64_t random_u64(void);
