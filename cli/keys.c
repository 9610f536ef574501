/* The escape keys of a terminal session. Called by cli/foreground.c for every piece that is typed.
 */
#include "cli/keys.h"

#include "common/macros.h"

#include <string.h>

#define CTRL_Z 0x1a

void keys_init(struct keys *keys, int escape)
{
    *keys = (struct keys){ .escape = escape, .line_start = true };
}

bool keys_parse(const char *text, int *ret)
{
    *ret = KEYS_ESCAPE;
    if (!text)
        return true;
    *ret = strcmp(text, "none") == 0 ? KEYS_NONE : (unsigned char)*text;
    return *ret == KEYS_NONE || (*text && !text[1]);
}

static enum keys_action action_of(char key)
{
    switch (key) {
    case '.':
        return KEYS_LEAVE;
    case '?':
        return KEYS_HELP;
    case CTRL_Z:
        return KEYS_SUSPEND;
    default:
        return KEYS_PASS;
    }
}

size_t keys_filter(struct keys *keys, char *data, size_t size, enum keys_action *ret)
{
    size_t out = 0;
    *ret = KEYS_PASS;
    if (keys->escape == KEYS_NONE)
        return size;
    if (keys->held) {
        /* Back in front, as if it had been typed in this piece: now it can be judged. */
        (void)memmove(data + 1, data, size++);
        data[0] = (char)keys->escape;
        keys->held = false;
        keys->line_start = true;
    }
    for (size_t in = 0; in < size; in++) {
        char key = data[in];
        bool escape = keys->line_start && key == (char)keys->escape;
        keys->line_start = key == '\r' || key == '\n';
        if (escape && in + 1 == size) {
            keys->held = true;
            break;
        }
        if (escape) {
            char next = data[in + 1];
            enum keys_action action = action_of(next);
            /* Both are ours; of a doubled escape, the first. */
            if (action != KEYS_PASS) {
                *ret = MAX(*ret, action);
                keys->line_start = true;
                in++;
                continue;
            }
            if (next == (char)keys->escape)
                continue;
        }
        data[out++] = key;
    }
    return out;
}
