/* Command lines from a table: parsing, --help and the man page come from the same rows, so they
 * cannot disagree. Long options with '=' or a following word, short ones, bundled flags, and "--".
 * One thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {
    OPTION_FLAG,     /* bool */
    OPTION_STRING,   /* const char *, points into argv */
    OPTION_UINT,     /* uint64_t, range checked against min and max */
    OPTION_DURATION, /* uint64_t microseconds: 500ms, 30s, 15m, 12h, 7d */
    OPTION_LIST,     /* struct option_list, may be repeated */
};

#define OPTION_LIST_MAX 64

struct option_list {
    const char *items[OPTION_LIST_MAX];
    unsigned count;
};

/* One row; the table ends with a row whose name is NULL. */
struct option {
    const char *name; /* long name, without dashes */
    char letter;      /* short name, or 0 */
    enum option_kind kind;
    const char *argument; /* how help calls the value: "DIR" */
    const char *help;     /* one sentence, no full stop */
    size_t offset;        /* of the value in the struct that is filled */
    uint64_t min, max;    /* OPTION_UINT and OPTION_DURATION; max 0 means unbounded */
};

struct config_key;

struct option_verb {
    const char *name;
    const char *arguments; /* "SANDBOX -- ARGV..." */
    const char *help;
};

/* What a program or one of its verbs is; everything that --help and the man page print. */
struct option_page {
    const char *program; /* "sandstorm exec" */
    unsigned section;    /* of the manual */
    const char *summary; /* one line */
    const char *usage;   /* what follows the program's name: "[OPTION...] SANDBOX -- ARGV..." */
    const struct option *options;
    const struct option_verb *verbs;   /* NULL, or ends with a NULL name */
    const char *const *examples;       /* NULL, or pairs: command, what it does; NULL-ended */
    const char *const *environment;    /* NULL, or pairs: name, meaning; NULL-ended */
    const char *settings_file;         /* NULL, or where the settings below are read from */
    const struct config_key *settings; /* NULL, or a table of common/config.h */
};

/* Fills `values`. --help is always known and sets *ret_help. Stops at the first word that is not
 * an option, or after "--"; *ret_rest is that word's index (argc when there is none). Errors name
 * the option and, for a near miss, the one that was probably meant. */
int options_parse(const struct option_page *page, int argc, char **argv, void *values,
                  bool *ret_help, int *ret_rest, struct err *err) must_use;
int duration_parse(const char *text, uint64_t *ret_us, struct err *err) must_use;

void options_help(const struct option_page *page, FILE *out);
/* scdoc(5) source. */
void options_man(const struct option_page *page, FILE *out);

/* The name in `names` (NULL-ended) nearest to `word`, or NULL when none is near. */
const char *nearest_name(const char *word, const char *const *names);
