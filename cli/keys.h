/* The keys that are for us and not for the command, when its terminal is ours: at the beginning of
 * a line the escape character, then one of these. No clock, no descriptor. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define KEYS_ESCAPE '~'
#define KEYS_NONE   (-1)
#define KEYS_HELP_TEXT                                                                             \
    "%c.  leave; the command goes on\n"                                                            \
    "%c^Z suspend this client\n"                                                                   \
    "%c?  this help\n"                                                                             \
    "%c%c  a single %c\n"

/* The later ones outweigh those before them. */
enum keys_action { KEYS_PASS, KEYS_HELP, KEYS_SUSPEND, KEYS_LEAVE };

struct keys {
    int escape; /* or KEYS_NONE */
    bool line_start, held;
};

void keys_init(struct keys *keys, int escape);
/* One character, or "none"; false when it is neither. NULL is the usual one. */
bool keys_parse(const char *text, int *ret);
/* Takes our keys out of what was typed; `data` has room for one byte more. Returns how many are
 * left for the command, and the weightiest of what is asked for. */
size_t keys_filter(struct keys *keys, char *data, size_t size, enum keys_action *ret);
