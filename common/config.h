/* Settings from one YAML file, a drop-in directory and the environment, in that order: later wins.
 * The file is a flat mapping of scalars; the table below it is the whole schema. An unknown key, a
 * duplicate, a wrong type or anything but scalars is an error that names file, line and key.
 * One thread, at start. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_FILE_MAX  65536u /* bytes */
#define CONFIG_VALUE_MAX 1024u
#define CONFIG_FILES_MAX 64u /* in the drop-in directory */

enum config_kind {
    CONFIG_STRING,   /* char *, owned; free with config_free */
    CONFIG_BOOL,     /* bool: true/false, yes/no, on/off */
    CONFIG_UINT,     /* uint64_t */
    CONFIG_DURATION, /* uint64_t microseconds, as in options.h */
};

/* One row; the table ends with a row whose name is NULL. */
struct config_key {
    const char *name;        /* "orchestrator_endpoint" */
    const char *environment; /* "SANDSTORM_ORCHESTRATOR_ENDPOINT", or NULL */
    enum config_kind kind;
    size_t offset;
    const char *fallback; /* the default, as it would be written; NULL leaves zero */
    uint64_t min, max;    /* CONFIG_UINT and CONFIG_DURATION; max 0 means unbounded */
    const char *help;
};

/* Sets the defaults, then reads `path` (a missing file is an error only when `required`), then
 * `path`.d/ *.yaml in byte order, then the environment. On failure `values` holds what config_free
 * can free. */
int config_load(const struct config_key *keys, const char *path, bool required, void *values,
                struct err *err) must_use;
/* One file's bytes; `name` is for error texts. What the fuzzer drives. */
int config_parse(const struct config_key *keys, const char *name, const void *data, size_t size,
                 void *values, struct err *err) must_use;
int config_set(const struct config_key *keys, const char *name, const char *value, void *values,
               struct err *err) must_use;
void config_free(const struct config_key *keys, void *values);
