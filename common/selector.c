/* Selectors: read once from the request of a client, then held against the labels of sandboxes by
 * orchestrator/control_sandbox.c and orchestrator/control_watch.c. */
#include "common/selector.h"

#include <stdio.h>
#include <string.h>

#define REQUIREMENT_MAX (LABEL_KEY_MAX + LABEL_VALUE_MAX + 4)

static int parse_one(char *text, struct selector *selector, struct err *err)
{
    char *key = text, *value = NULL;
    enum selector_op op = SELECTOR_HAS;
    char *equals = strchr(text, '=');
    if (equals) {
        value = equals + 1 + (equals[1] == '=');
        op = equals > text && equals[-1] == '!' ? SELECTOR_IS_NOT : SELECTOR_IS;
        equals[op == SELECTOR_IS_NOT ? -1 : 0] = '\0';
    } else if (*text == '!') {
        key++;
        op = SELECTOR_HAS_NOT;
    }
    /* A requirement without a value is checked with one that is well-formed. */
    if (label_check(key, value ? value : "x", err) < 0)
        return -1;
    unsigned at = selector->count++;
    selector->requirements[at].op = op;
    (void)snprintf(selector->requirements[at].key, LABEL_KEY_MAX + 1, "%.*s", (int)LABEL_KEY_MAX,
                   key);
    (void)snprintf(selector->requirements[at].value, LABEL_VALUE_MAX + 1, "%.*s",
                   (int)LABEL_VALUE_MAX, value ? value : "");
    return 0;
}

int selector_parse(const char *text, struct selector *ret, struct err *err)
{
    struct selector selector = { 0 };
    while (*text) {
        size_t size = strcspn(text, ",");
        char one[REQUIREMENT_MAX + 1];
        if (selector.count == SELECTOR_MAX)
            return err_set(err, ERR_INVALID, "a selector has at most %u parts", SELECTOR_MAX);
        if (size == 0 || size > REQUIREMENT_MAX || (text[size] == ',' && !text[size + 1]))
            return err_set(
                err, ERR_INVALID,
                "\"%.80s\" is not a selector; write for example env=ci,role!=db,gpu,!old", text);
        (void)snprintf(one, sizeof(one), "%.*s", (int)size, text);
        if (parse_one(one, &selector, err) < 0)
            return err_wrap(err, "selector");
        text += size + (text[size] == ',');
    }
    *ret = selector;
    return 0;
}

/* The value of a key, or NULL. */
static const char *find(const char *labels, const char *key, char value[LABEL_VALUE_MAX + 1])
{
    char other[LABEL_KEY_MAX + 1];
    while (labels_next(&labels, other, value))
        if (strcmp(other, key) == 0)
            return value;
    return NULL;
}

bool selector_matches(const struct selector *selector, const char *trusted, const char *reported)
{
    for (unsigned i = 0; i < selector->count; i++) {
        const char *key = selector->requirements[i].key;
        char room[LABEL_VALUE_MAX + 1];
        const char *value = find(trusted, key, room);
        if (!value)
            value = find(reported, key, room);
        bool is = value && strcmp(value, selector->requirements[i].value) == 0;
        const bool holds[] = {
            [SELECTOR_IS] = is,
            [SELECTOR_IS_NOT] = !is,
            [SELECTOR_HAS] = value != NULL,
            [SELECTOR_HAS_NOT] = value == NULL,
        };
        if (!holds[selector->requirements[i].op])
            return false;
    }
    return true;
}
