/* UTF-8 checking for strings that come from peers; used by common/wire.c, common/log_sink.c
 * and common/err.c. */
#include "common/utf8.h"

#include <assert.h>
#include <string.h>

static bool continues(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

/* The first byte fixes the length and, for four of them, narrows the second byte: RFC 3629, 4. */
size_t utf8_character(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t lead = data[0];
    if (lead < 0x80)
        return 1;
    uint8_t low = 0x80, high = 0xbf;
    size_t length;
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        low = lead == 0xe0 ? 0xa0 : low;
        high = lead == 0xed ? 0x9f : high;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        low = lead == 0xf0 ? 0x90 : low;
        high = lead == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if (size < length || data[1] < low || data[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (!continues(data[i]))
            return 0;
    return length;
}

bool utf8_valid(const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t length = utf8_character(data, size);
        if (length == 0)
            return false;
        data += length;
        size -= length;
    }
    return true;
}

void utf8_clean(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t length = utf8_character((const uint8_t *)text, left);
        if (length == 0) {
            *text = '?';
            length = 1;
        }
        text += length;
        left -= length;
    }
}

/* C0, DEL, and the C1 set that terminals obey too: U+0080 to U+009F. */
static bool is_control(const uint8_t *character, size_t length)
{
    if (length == 1)
        return *character < 0x20 || *character == 0x7f;
    return length == 2 && character[0] == 0xc2 && character[1] < 0xa0;
}

void utf8_one_line(const char *text, char *ret, size_t size)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t left = strlen(text), used = 0;
    assert(size > 0);
    while (left > 0) {
        size_t length = utf8_character(at, left);
        bool malformed = length == 0;
        length = malformed ? 1 : length;
        bool replaced = malformed || is_control(at, length);
        size_t needed = replaced ? 1 : length;
        if (used + needed >= size)
            break;
        if (replaced)
            ret[used] = malformed ? '?' : ' ';
        else
            (void)memcpy(ret + used, at, length);
        used += needed;
        at += length;
        left -= length;
    }
    ret[used] = '\0';
}
