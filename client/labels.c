/* Sets of labels between the text that people write and the messages of the wire. Called by
 * client/sandbox.c and client/admin.c; the form of a set is common/label.h's. */
#include "client/client-internal.h"

#include "common/label.h"

#include <stdio.h>
#include <string.h>

int client_labels_pack(const char *labels, struct client_labels *ret, struct err *err)
{
    size_t count = labels_count(labels);
    struct client_labels packed = {
        .items = calloc(count + 1, sizeof(*packed.items)),
        .pointers = calloc(count + 1, sizeof(*packed.pointers)),
    };
    char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    bool full = packed.items && packed.pointers;
    const char *position = labels ? labels : "";
    while (full && packed.count < count && labels_next(&position, key, value)) {
        Sandstorm__V1__Label *label = &packed.items[packed.count];
        sandstorm__v1__label__init(label);
        label->name = strdup(key);
        label->value = strdup(value);
        packed.pointers[packed.count++] = label;
        full = label->name && label->value;
    }
    if (!full) {
        client_labels_done(&packed);
        return err_nomem(err);
    }
    *ret = packed;
    return 0;
}

void client_labels_done(struct client_labels *labels)
{
    for (size_t i = 0; i < labels->count; i++) {
        free(labels->items[i].name);
        free(labels->items[i].value);
    }
    free(labels->items);
    free(labels->pointers);
    *labels = (struct client_labels){ 0 };
}

int client_labels_text(Sandstorm__V1__Label *const *labels, size_t count, char **ret,
                       struct err *err)
{
    CLEANUP_FREE char *text = NULL;
    for (size_t i = 0; i < count; i++)
        if (labels_add(&text, labels[i]->name, labels[i]->value, err) < 0)
            return err_wrap(err, "the orchestrator sent a set of labels that is none");
    if (!text)
        text = strdup("");
    if (!text)
        return err_nomem(err);
    *ret = TAKE_PTR(text);
    return 0;
}

int client_labels_join(Sandstorm__V1__Label *const *labels, size_t count, char **ret,
                       struct err *err)
{
    CLEANUP_FREE char *text = strdup("");
    for (size_t i = 0; text && i < count; i++) {
        CLEANUP_FREE char *before = text;
        if (asprintf(&text, "%s%s%s=%s", before, i > 0 ? "," : "", labels[i]->name,
                     labels[i]->value) < 0)
            text = NULL;
    }
    if (!text)
        return err_nomem(err);
    *ret = TAKE_PTR(text);
    return 0;
}
