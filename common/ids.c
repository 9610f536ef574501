/* Owns the patterns of the names that cross a trust boundary and the randomness behind new ones.
 * Handed text by whoever reads a flag, a certificate or a frame; hands back a verdict. The rejected
 * text is never quoted in the error: it comes from a peer and may hold anything.
 * Calls nobody but the kernel. */
#include "common/ids.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* The C library's isalnum() and friends follow the locale; these names do not. */
static bool is_lower_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alnum(char c)
{
    return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z');
}

static bool is_lower_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* True when the text is 1 to max characters, all of which are allowed, and neither the first nor
 * the last one is one of the `inner` characters. */
static bool name_matches(const char *text, size_t max, bool (*allowed)(char), const char *inner)
{
    size_t size = strnlen(text, max + 1);
    if (size == 0 || size > max)
        return false;
    for (size_t i = 0; i < size; i++) {
        bool at_edge = i == 0 || i == size - 1;
        if (!allowed(text[i]) && (at_edge || !strchr(inner, text[i])))
            return false;
    }
    return true;
}

int sandbox_id_check(const char *text, struct err *err)
{
    assert(text);
    if (!name_matches(text, SANDBOX_ID_MAX, is_lower_or_digit, "-"))
        return err_set(err, ERR_INVALID,
                       "bad sandbox id: use 1 to %d of a-z, 0-9 and dashes, beginning and ending "
                       "with a letter or digit",
                       SANDBOX_ID_MAX);
    return 0;
}

int client_name_check(const char *text, struct err *err)
{
    assert(text);
    if (!name_matches(text, CLIENT_NAME_MAX, is_alnum, "-._"))
        return err_set(err, ERR_INVALID,
                       "bad client name: use 1 to %d of a-z, A-Z, 0-9, dashes, dots and "
                       "underscores, beginning and ending with a letter or digit",
                       CLIENT_NAME_MAX);
    return 0;
}

static bool is_printable(char c)
{
    return c > ' ' && c <= '~';
}

int vm_id_check(const char *text, struct err *err)
{
    assert(text);
    if (!name_matches(text, VM_ID_MAX, is_printable, ""))
        return err_set(err, ERR_INVALID,
                       "bad VM id: use 1 to %d printable ASCII characters without spaces",
                       VM_ID_MAX);
    return 0;
}

static bool is_dash_position(size_t i)
{
    return i == 8 || i == 13 || i == 18 || i == 23;
}

static bool is_uuid(const char *text)
{
    if (strnlen(text, COMMAND_ID_LEN + 1) != COMMAND_ID_LEN)
        return false;
    for (size_t i = 0; i < COMMAND_ID_LEN; i++)
        if (is_dash_position(i) ? text[i] != '-' : !is_lower_hex(text[i]))
            return false;
    return true;
}

/* Any UUID version is welcome: a client may derive its ids from names of its own (RFC 9562). */
int command_id_parse(const char *text, struct command_id *ret, struct err *err)
{
    assert(text);
    if (!is_uuid(text))
        return err_set(err, ERR_INVALID,
                       "bad command id: use a lower-case UUID, such as the one that uuidgen "
                       "prints");
    (void)memcpy(ret->text, text, COMMAND_ID_LEN + 1);
    return 0;
}

/* Up to 256 bytes come whole or not at all, getrandom(2); a signal can only interrupt the wait for
 * the pool to be seeded, early in the boot. */
static int random_bytes(void *out, size_t size)
{
    assert(size <= 256);
    ssize_t n;
    do
        n = getrandom(out, size, 0);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)size ? 0 : -1;
}

int command_id_new(struct command_id *ret, struct err *err)
{
    uint8_t raw[16];
    if (random_bytes(raw, sizeof(raw)) < 0)
        return err_errno(err, errno, "cannot get random bytes for a command id");
    raw[6] = (uint8_t)(0x40 | (raw[6] & 0x0f));
    raw[8] = (uint8_t)(0x80 | (raw[8] & 0x3f));

    static const char digits[] = "0123456789abcdef";
    char *out = ret->text;
    for (size_t i = 0; i < sizeof(raw); i++) {
        if (is_dash_position((size_t)(out - ret->text)))
            *out++ = '-';
        *out++ = digits[raw[i] >> 4];
        *out++ = digits[raw[i] & 0x0f];
    }
    *out = '\0';
    return 0;
}

uint64_t random_u64(void)
{
    uint64_t value;
    if (random_bytes(&value, sizeof(value)) < 0)
        abort();
    return value;
}
