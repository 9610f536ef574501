/* Settings of the daemons. main() hands in a table and the struct it fills; files come from
 * common/file.c, libyaml turns them into events, and every value, wherever it came from, ends in
 * config_set. The grammar here is only "one mapping, scalars on both sides": anything else YAML
 * can say is refused where it stands, so libyaml never builds a tree out of somebody's file. */
#include "common/config.h"
#include "common/file.h"
#include "common/options-internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define CONFIG_KEYS_MAX 128u /* rows of a table that take part in the guess */

/* One file on its way through libyaml. */
struct reader {
    const struct config_key *keys;
    const char *name;
    const char *data;
    size_t size;
    void *values;
    size_t *lines; /* per row: where this file set it, 0 for not yet */
    yaml_parser_t parser;
};

static const struct {
    const char *text;
    bool value;
} booleans[] = {
    { "true", true },   { "yes", true }, { "on", true },
    { "false", false }, { "no", false }, { "off", false },
};

static void *slot_of(const struct config_key *key, void *values)
{
    return (char *)values + key->offset;
}

static size_t count_keys(const struct config_key *keys)
{
    size_t count = 0;
    while (keys[count].name)
        count++;
    return count;
}

static const struct config_key *find_key(const struct config_key *keys, const char *name)
{
    for (; keys->name; keys++)
        if (strcmp(keys->name, name) == 0)
            return keys;
    return NULL;
}

static int unknown_key(const struct config_key *keys, const char *name, struct err *err)
{
    const char *names[CONFIG_KEYS_MAX + 1];
    size_t count = 0;
    for (; count < CONFIG_KEYS_MAX && keys[count].name; count++)
        names[count] = keys[count].name;
    names[count] = NULL;
    const char *near = nearest_name(name, names);
    if (near)
        return err_set(err, ERR_INVALID, "unknown key \"%.64s\"; did you mean \"%s\"?", name, near);
    return err_set(err, ERR_INVALID, "unknown key \"%.64s\"; remove it", name);
}

static int set_string(char **slot, const char *value, struct err *err)
{
    char *copy = strdup(value);
    if (!copy)
        return err_nomem(err);
    free(*slot);
    *slot = copy;
    return 0;
}

static int set_bool(bool *slot, const char *value, struct err *err)
{
    for (size_t i = 0; i < ELEMENTS(booleans); i++)
        if (strcmp(booleans[i].text, value) == 0) {
            *slot = booleans[i].value;
            return 0;
        }
    return err_set(err, ERR_INVALID, "\"%.64s\" is neither true nor false; write one of them",
                   value);
}

static int set_value(const struct config_key *key, const char *value, void *slot, struct err *err)
{
    if (strlen(value) > CONFIG_VALUE_MAX)
        return err_set(err, ERR_INVALID, "longer than %u bytes; shorten it", CONFIG_VALUE_MAX);
    if (key->kind == CONFIG_STRING)
        return set_string(slot, value, err);
    if (value[0] == '\0')
        return err_set(err, ERR_INVALID, "is empty; give it a value or remove it");
    if (key->kind == CONFIG_BOOL)
        return set_bool(slot, value, err);
    return options_number(value, key->kind == CONFIG_DURATION, key->min, key->max, slot, err);
}

int config_set(const struct config_key *keys, const char *name, const char *value, void *values,
               struct err *err)
{
    const struct config_key *key = find_key(keys, name);
    if (!key)
        return unknown_key(keys, name, err);
    if (set_value(key, value, slot_of(key, values), err) < 0)
        return err_wrap(err, "%s", key->name);
    return 0;
}

static void clear(const struct config_key *key, void *slot)
{
    switch (key->kind) {
    case CONFIG_STRING:
        free(*(char **)slot);
        *(char **)slot = NULL;
        break;
    case CONFIG_BOOL:
        *(bool *)slot = false;
        break;
    case CONFIG_UINT:
    case CONFIG_DURATION:
        *(uint64_t *)slot = 0;
        break;
    }
}

void config_free(const struct config_key *keys, void *values)
{
    for (; values && keys->name; keys++)
        clear(keys, slot_of(keys, values));
}

/* Puts file and line in front of an error that is already set. */
static int at_line(const struct reader *reader, size_t line, struct err *err)
{
    return err_wrap(err, "%s:%zu", reader->name, line);
}

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

static int syntax_error(const struct reader *reader, struct err *err)
{
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return err_nomem(err);
    size_t line = parser->problem_mark.line + 1;
    /* For bytes that are no text libyaml gives an offset and no line. */
    if (parser->error == YAML_READER_ERROR) {
        line = 1;
        for (size_t i = 0; i < MIN(parser->problem_offset, reader->size); i++)
            line += reader->data[i] == '\n';
    }
    (void)err_set(err, ERR_INVALID, "not valid YAML: %s; check quotes and indentation here",
                  parser->problem ? parser->problem : "it cannot be read");
    return at_line(reader, line, err);
}

static int next_event(struct reader *reader, yaml_event_t *event, struct err *err)
{
    return yaml_parser_parse(&reader->parser, event) ? 0 : syntax_error(reader, err);
}

/* Whether the event is one plain or quoted string. `key` is the one it belongs to, or NULL when it
 * is to be a key itself. */
static int check_scalar(const struct reader *reader, const yaml_event_t *event, const char *key,
                        struct err *err)
{
    bool scalar = event->type == YAML_SCALAR_EVENT;
    bool marked = event->type == YAML_ALIAS_EVENT ||
                  (scalar && (event->data.scalar.anchor || event->data.scalar.tag));
    if (marked)
        (void)err_set(err, ERR_INVALID,
                      "anchors, aliases and tags are not supported; write the value itself");
    else if (!scalar && key)
        (void)err_set(err, ERR_INVALID, "%s: must be a single value, not a list or a mapping", key);
    else if (!scalar)
        (void)err_set(err, ERR_INVALID, "a key must be a single value; write \"key: value\"");
    else if (memchr(event->data.scalar.value, '\0', event->data.scalar.length))
        (void)err_set(err, ERR_INVALID, "contains a NUL character; remove it");
    else
        return 0;
    return at_line(reader, line_of(event), err);
}

/* The row a key names, unless it is unknown or this file has set it before. */
static int claim_key(struct reader *reader, const yaml_event_t *event,
                     const struct config_key **ret, struct err *err)
{
    if (check_scalar(reader, event, NULL, err) < 0)
        return -1;
    const char *name = (const char *)event->data.scalar.value;
    const struct config_key *key = find_key(reader->keys, name);
    if (!key) {
        (void)unknown_key(reader->keys, name, err);
        return at_line(reader, line_of(event), err);
    }
    size_t *line = &reader->lines[key - reader->keys];
    if (*line != 0) {
        (void)err_set(err, ERR_INVALID, "duplicate key \"%s\", first set in line %zu; remove one",
                      name, *line);
        return at_line(reader, line_of(event), err);
    }
    *line = line_of(event);
    *ret = key;
    return 0;
}

/* From the start of the mapping to its end. */
static int read_pairs(struct reader *reader, struct err *err)
{
    for (;;) {
        CLEANUP(yaml_event_delete) yaml_event_t name = { 0 }, value = { 0 };
        if (next_event(reader, &name, err) < 0)
            return -1;
        if (name.type == YAML_MAPPING_END_EVENT)
            return 0;
        const struct config_key *key = NULL;
        if (claim_key(reader, &name, &key, err) < 0 || next_event(reader, &value, err) < 0 ||
            check_scalar(reader, &value, key->name, err) < 0)
            return -1;
        const char *text = (const char *)value.data.scalar.value;
        if (config_set(reader->keys, key->name, text, reader->values, err) < 0)
            return at_line(reader, line_of(&value), err);
    }
}

/* What stands at the top: the mapping, or nothing at all below a "---". */
static int read_root(struct reader *reader, struct err *err)
{
    CLEANUP(yaml_event_delete) yaml_event_t root = { 0 };
    if (next_event(reader, &root, err) < 0)
        return -1;
    if (root.type == YAML_MAPPING_START_EVENT && !root.data.mapping_start.anchor &&
        !root.data.mapping_start.tag)
        return read_pairs(reader, err);
    if (root.type == YAML_SCALAR_EVENT && root.data.scalar.length == 0 &&
        root.data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !root.data.scalar.anchor &&
        !root.data.scalar.tag)
        return 0;
    (void)err_set(err, ERR_INVALID, "the file must consist of \"key: value\" lines, no more");
    return at_line(reader, line_of(&root), err);
}

static int read_stream(struct reader *reader, struct err *err)
{
    for (unsigned documents = 0;;) {
        CLEANUP(yaml_event_delete) yaml_event_t event = { 0 };
        if (next_event(reader, &event, err) < 0)
            return -1;
        if (event.type == YAML_STREAM_END_EVENT)
            return 0;
        if (event.type != YAML_DOCUMENT_START_EVENT) /* the stream's start, a document's end */
            continue;
        if (++documents > 1) {
            (void)err_set(err, ERR_INVALID, "only one document is allowed; remove this one");
            return at_line(reader, line_of(&event), err);
        }
        if (event.data.document_start.tag_directives.start !=
            event.data.document_start.tag_directives.end) {
            (void)err_set(err, ERR_INVALID, "%%TAG is not supported; remove it");
            return at_line(reader, line_of(&event), err);
        }
        if (read_root(reader, err) < 0)
            return -1;
    }
}

int config_parse(const struct config_key *keys, const char *name, const void *data, size_t size,
                 void *values, struct err *err)
{
    if (size == 0)
        return 0;
    if (size > CONFIG_FILE_MAX)
        return err_set(err, ERR_INVALID, "%s: larger than %u bytes; shorten it", name,
                       CONFIG_FILE_MAX);
    /* A byte order mark, as some editors write it, would count as indentation of the first line:
     * libyaml drops it only when it may guess the encoding, and we do not want UTF-16. */
    if (size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        data = (const char *)data + 3;
        size -= 3;
    }
    CLEANUP_FREE size_t *lines = calloc(count_keys(keys) + 1, sizeof(*lines));
    struct reader reader = {
        .keys = keys, .name = name, .data = data, .size = size, .values = values, .lines = lines
    };
    if (!lines || !yaml_parser_initialize(&reader.parser))
        return err_nomem(err);
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, data, size);
    int r = read_stream(&reader, err);
    yaml_parser_delete(&reader.parser);
    return r;
}

static int load_file(const struct config_key *keys, const char *path, bool required, void *values,
                     struct err *err)
{
    CLEANUP_FREE char *data = NULL;
    size_t size = 0;
    struct err local;
    if (file_read(path, CONFIG_FILE_MAX, &data, &size, &local) == 0)
        return config_parse(keys, path, data, size, values, err);
    if (local.code == ERR_NOT_FOUND && !required)
        return 0;
    if (err)
        *err = local;
    return err_wrap(err, "configuration");
}

static int is_drop_in(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot && strcmp(dot, ".yaml") == 0;
}

/* alphasort(3) would follow the locale, and the order decides who wins. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_drop_in(const struct config_key *keys, const char *directory, const char *name,
                        void *values, struct err *err)
{
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, name) < 0) {
        path = NULL;
        return err_nomem(err);
    }
    return load_file(keys, path, true, values, err);
}

static int load_drop_ins(const struct config_key *keys, const char *path, void *values,
                         struct err *err)
{
    CLEANUP_FREE char *directory = NULL;
    if (asprintf(&directory, "%s.d", path) < 0) {
        directory = NULL;
        return err_nomem(err);
    }
    CLEANUP_FREE struct dirent **entries = NULL;
    int count = scandir(directory, &entries, is_drop_in, by_bytes);
    if (count < 0 && errno == ENOENT)
        return 0;
    if (count < 0)
        return err_errno(err, errno, "cannot list %s", directory);
    int r = 0;
    if ((unsigned)count > CONFIG_FILES_MAX)
        r = err_set(err, ERR_INVALID, "%s holds %d files; merge them into %u or fewer", directory,
                    count, CONFIG_FILES_MAX);
    for (int i = 0; i < count; i++) {
        if (r == 0)
            r = load_drop_in(keys, directory, entries[i]->d_name, values, err);
        free(entries[i]);
    }
    return r;
}

static int load_environment(const struct config_key *keys, void *values, struct err *err)
{
    for (const struct config_key *key = keys; key->name; key++) {
        const char *value = key->environment ? getenv(key->environment) : NULL;
        if (value && config_set(keys, key->name, value, values, err) < 0)
            return err_wrap(err, "environment %s", key->environment);
    }
    return 0;
}

static int set_defaults(const struct config_key *keys, void *values, struct err *err)
{
    config_free(keys, values);
    for (const struct config_key *key = keys; key->name; key++)
        if (key->fallback && config_set(keys, key->name, key->fallback, values, err) < 0)
            return err_wrap(err, "built-in default; report this bug");
    return 0;
}

/* `values` is zeroed by the caller, or was filled by an earlier load, which is then forgotten. */
int config_load(const struct config_key *keys, const char *path, bool required, void *values,
                struct err *err)
{
    if (set_defaults(keys, values, err) < 0 || load_file(keys, path, required, values, err) < 0 ||
        load_drop_ins(keys, path, values, err) < 0)
        return -1;
    return load_environment(keys, values, err);
}
