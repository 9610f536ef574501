/* Between common/label.c and the messages of orchestrator/control_*.c. */
#include "orchestrator/label_messages.h"

#include <string.h>

size_t label_messages_fill(struct label_messages *room, const char *labels)
{
    char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    size_t count = 0;
    while (count < LABELS_MAX && labels_next(&labels, key, value)) {
        Sandstorm__V1__Label *message = &room->messages[count];
        char *text = room->texts[count];
        size_t key_size = strlen(key) + 1;
        sandstorm__v1__label__init(message);
        message->name = memcpy(text, key, key_size);
        message->value = memcpy(text + key_size, value, strlen(value) + 1);
        room->pointers[count++] = message;
    }
    return count;
}

int label_messages_read(Sandstorm__V1__Label *const *messages, size_t count, char **ret,
                        struct err *err)
{
    CLEANUP_FREE char *labels = NULL;
    for (size_t i = 0; i < count; i++)
        if (labels_add(&labels, messages[i]->name, messages[i]->value, err) < 0)
            return -1;
    *ret = TAKE_PTR(labels);
    return 0;
}
