/* Feeds config_parse with arbitrary bytes. The sanitizers watch memory; the checks below watch the
 * contract: bounds hold, a refusal has a text, and config_free leaves nothing behind. */
#include "common/config.h"

#include <string.h>

struct settings {
    char *text, *other;
    bool flag;
    uint64_t number, time;
};

#define AT(field) offsetof(struct settings, field)

static const struct config_key keys[] = {
    { "text", NULL, CONFIG_STRING, AT(text), NULL, 0, 0, "" },
    { "other", NULL, CONFIG_STRING, AT(other), NULL, 0, 0, "" },
    { "flag", NULL, CONFIG_BOOL, AT(flag), NULL, 0, 0, "" },
    { "number", NULL, CONFIG_UINT, AT(number), NULL, 1, 100, "" },
    { "time", NULL, CONFIG_DURATION, AT(time), NULL, 0, UINT64_C(3600000000), "" },
    { 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings values = { 0 };
    struct err err = { 0 };
    int r = config_parse(keys, "fuzz.yaml", data, size, &values, &err);
    check(r == 0 || (err.code != ERR_NONE && strncmp(err.text, "fuzz.yaml", 9) == 0));
    check(size <= CONFIG_FILE_MAX || r < 0);
    check(!values.text || strlen(values.text) <= CONFIG_VALUE_MAX);
    check(!values.other || strlen(values.other) <= CONFIG_VALUE_MAX);
    check(values.number <= 100);
    check(values.time <= UINT64_C(3600000000));

    /* What was accepted is accepted again and means the same, also over values already set. */
    struct settings again = { 0 };
    if (r == 0) {
        check(config_parse(keys, "fuzz.yaml", data, size, &again, &err) == 0);
        check(config_parse(keys, "fuzz.yaml", data, size, &again, &err) == 0);
        check(again.flag == values.flag && again.number == values.number);
        check(!again.text == !values.text && (!again.text || !strcmp(again.text, values.text)));
    }
    config_free(keys, &again);
    config_free(keys, &values);
    const struct settings empty = { 0 };
    check(values.text == empty.text && values.other == empty.other && values.flag == empty.flag);
    check(values.number == empty.number && values.time == empty.time);
    return 0;
}
