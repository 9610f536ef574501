/* Label sets as the wire has them, and back. Loop thread. */
#pragma once

#include "common/label.h"
#include "sandstorm/v1/types.pb-c.h"

/* Room for one set; the messages point into it. */
struct label_messages {
    Sandstorm__V1__Label *pointers[LABELS_MAX];
    Sandstorm__V1__Label messages[LABELS_MAX];
    char texts[LABELS_MAX][LABEL_KEY_MAX + LABEL_VALUE_MAX + 2];
};

/* How many there are. NULL is the empty set. */
size_t label_messages_fill(struct label_messages *room, const char *labels);
/* From a peer: checked. *ret is NULL for none. */
int label_messages_read(Sandstorm__V1__Label *const *messages, size_t count, char **ret,
                        struct err *err) must_use;
