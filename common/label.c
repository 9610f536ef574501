/* Label sets as one canonical text. Texts come from people (cli/), tokens and the store; what is
 * held in this form has passed label_check(). */
#include "common/label.h"

#include <stdio.h>
#include <string.h>

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* Ends are plain, the inside may have more. */
static bool well_formed(const char *text, size_t max, const char *ends, const char *inside)
{
    size_t length = strnlen(text, max + 1);
    return length > 0 && length <= max && strspn(text, inside) == length && strchr(ends, *text) &&
           strchr(ends, text[length - 1]);
}

int label_check(const char *key, const char *value, struct err *err)
{
    if (!well_formed(key, LABEL_KEY_MAX, LOWER DIGITS, LOWER DIGITS "._/-"))
        return err_set(err, ERR_INVALID,
                       "\"%.80s\" is not a label's key; use 1 to %u of a-z, 0-9 and, inside, . _ / "
                       "-",
                       key, LABEL_KEY_MAX);
    if (!well_formed(value, LABEL_VALUE_MAX, LOWER UPPER DIGITS, LOWER UPPER DIGITS "._-"))
        return err_set(err, ERR_INVALID,
                       "\"%.80s\" is not a label's value; use 1 to %u letters, digits and, inside, "
                       ". _ -",
                       value, LABEL_VALUE_MAX);
    return 0;
}

bool labels_next(const char **position, char key[LABEL_KEY_MAX + 1],
                 char value[LABEL_VALUE_MAX + 1])
{
    const char *at = *position;
    if (!at || !*at)
        return false;
    size_t key_size = strcspn(at, "=");
    const char *rest = at + key_size + (at[key_size] == '=');
    size_t value_size = strcspn(rest, ",");
    (void)snprintf(key, LABEL_KEY_MAX + 1, "%.*s", (int)MIN(key_size, LABEL_KEY_MAX), at);
    (void)snprintf(value, LABEL_VALUE_MAX + 1, "%.*s", (int)MIN(value_size, LABEL_VALUE_MAX), rest);
    *position = rest + value_size + (rest[value_size] == ',');
    return true;
}

unsigned labels_count(const char *labels)
{
    char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    unsigned count = 0;
    while (labels_next(&labels, key, value))
        count++;
    return count;
}

int labels_add(char **labels, const char *key, const char *value, struct err *err)
{
    if (label_check(key, value, err) < 0)
        return -1;
    const char *old = *labels ? *labels : "";
    const char *position = old, *before;
    char other[LABEL_KEY_MAX + 1], there[LABEL_VALUE_MAX + 1];
    unsigned count = labels_count(old);
    /* Finds where it belongs. */
    while (before = position, labels_next(&position, other, there)) {
        int order = strcmp(other, key);
        if (order == 0 && strcmp(there, value) == 0)
            return 0;
        if (order == 0)
            return err_set(err, ERR_EXISTS, "label \"%s\" is given twice, as \"%s\" and \"%s\"",
                           key, there, value);
        if (order > 0)
            break;
    }
    if (count >= LABELS_MAX)
        return err_set(err, ERR_EXHAUSTED, "at most %u labels", LABELS_MAX);
    char *text;
    size_t head = (size_t)(before - old);
    /* Between the two halves there is a comma already, except at the end of the text. */
    if (asprintf(&text, "%.*s%s%s=%s%s%s", (int)head, old, head && !*before ? "," : "", key, value,
                 *before ? "," : "", before) < 0)
        return err_nomem(err);
    free(*labels);
    *labels = text;
    return 0;
}

int labels_add_text(char **labels, const char *text, struct err *err)
{
    const char *equals = strchr(text, '=');
    char key[LABEL_KEY_MAX + 2];
    if (!equals)
        return err_set(err, ERR_INVALID, "\"%.80s\" is not a label; write KEY=VALUE", text);
    (void)snprintf(key, sizeof(key), "%.*s", (int)MIN((size_t)(equals - text), sizeof(key) - 1),
                   text);
    return labels_add(labels, key, equals + 1, err);
}

bool labels_contain(const char *labels, const char *scope)
{
    char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    char other[LABEL_KEY_MAX + 1], there[LABEL_VALUE_MAX + 1];
    while (labels_next(&scope, key, value)) {
        const char *position = labels;
        bool found = false;
        while (!found && labels_next(&position, other, there))
            found = strcmp(key, other) == 0 && strcmp(value, there) == 0;
        if (!found)
            return false;
    }
    return true;
}

int labels_parse(const char *text, char **ret, struct err *err)
{
    static const char spaces[] = " \t";
    CLEANUP_FREE char *labels = NULL;
    const char *at = text + strspn(text, spaces);
    while (*at) {
        /* One more than the longest, so that a longer one is refused and not cut. */
        char one[LABEL_KEY_MAX + LABEL_VALUE_MAX + 3];
        size_t size = strcspn(at, ",");
        const char *next = at + size;
        while (size > 0 && strchr(spaces, at[size - 1]))
            size--;
        (void)snprintf(one, sizeof(one), "%.*s", (int)MIN(size, sizeof(one) - 1), at);
        if (labels_add_text(&labels, one, err) < 0)
            return -1;
        if (!*next)
            break;
        at = next + 1 + strspn(next + 1, spaces);
        if (!*at)
            return err_set(err, ERR_INVALID, "there is no label after the last comma");
    }
    *ret = TAKE_PTR(labels);
    return 0;
}
