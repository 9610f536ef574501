/* Labels: key=value pairs on sandboxes, and the same as a scope that a client is held to. A set of
 * them is one text in one form, sorted by key: "env=ci,role=web"; the empty text is the empty set.
 * So a set can be stored, compared and sent without a structure of its own. Any thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <sys/types.h>

#define LABELS_MAX      16u
#define LABEL_KEY_MAX   63u
#define LABEL_VALUE_MAX 63u
#define LABELS_TEXT_MAX (LABELS_MAX * (LABEL_KEY_MAX + LABEL_VALUE_MAX + 2))

/* A key is [a-z0-9] with inner [a-z0-9._/-], a value [A-Za-z0-9] with inner [A-Za-z0-9._-]. */
int label_check(const char *key, const char *value, struct err *err) must_use;
/* Adds one to a set in the canonical form, which may move. ERR_EXISTS when the key is there with
 * another value, ERR_EXHAUSTED when the set is full. NULL is the empty set. */
int labels_add(char **labels, const char *key, const char *value, struct err *err) must_use;
/* The same from "key=value". */
int labels_add_text(char **labels, const char *text, struct err *err) must_use;
/* Every label of `scope` is in `labels`. True for the empty scope. NULL is the empty set. */
bool labels_contain(const char *labels, const char *scope);
unsigned labels_count(const char *labels);
/* Walks a set: fills key and value with the next label and moves *position; false at the end. Start
 * with *position = labels. */
bool labels_next(const char **position, char key[LABEL_KEY_MAX + 1],
                 char value[LABEL_VALUE_MAX + 1]);
/* A set from what a person has written, "env=ci, role=web": any order, spaces around the commas.
 * NULL for the empty set, for free(). */
int labels_parse(const char *text, char **ret, struct err *err) must_use;
