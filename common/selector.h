/* Label selectors, as people type them: "env=ci,role!=db,gpu,!old" means that all of it holds. A
 * requirement is KEY=VALUE (or ==), KEY!=VALUE (also true where the key is missing), KEY (is there)
 * or !KEY (is not). Pure; any thread. */
#pragma once

#include "common/label.h"

#define SELECTOR_MAX LABELS_MAX /* requirements */

enum selector_op { SELECTOR_IS, SELECTOR_IS_NOT, SELECTOR_HAS, SELECTOR_HAS_NOT };

struct selector {
    unsigned count;
    struct {
        enum selector_op op;
        char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    } requirements[SELECTOR_MAX];
};

/* The empty text selects everything. */
int selector_parse(const char *text, struct selector *ret, struct err *err) must_use;
/* Of two label sets; where both have a key, `trusted` counts. Either may be NULL. */
bool selector_matches(const struct selector *selector, const char *trusted, const char *reported);
