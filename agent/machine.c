/* Owns the three names by which a machine can be told from its copy: where they are read, which
 * values of them mean nothing, and the file they are kept in. agent/enroll.c asks, and writes what
 * it gets beside the key. */
#include "agent/machine.h"

#include "common/file.h"

#include <ctype.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <systemd/sd-id128.h>

#define MACHINE_FILE_MAX 4096u
#define MACHINE_VERSION  1

/* What machine-id(5) calls the application: ours, random and never changed. */
static const sd_id128_t application = { .bytes = { 0x1f, 0xfc, 0xf6, 0xbd, 0xde, 0x90, 0x47, 0xf0,
                                                   0xa4, 0xa3, 0x39, 0x5e, 0x16, 0xd6, 0x15,
                                                   0xf4 } };

static const struct {
    const char *key, *words;
    size_t offset;
} fields[] = {
    { "machine_id", "machine id", offsetof(struct machine, machine_id) },
    { "smbios_uuid", "firmware UUID", offsetof(struct machine, smbios_uuid) },
    { "instance_id", "cloud instance id", offsetof(struct machine, instance_id) },
};

/* Bytes that are no text, and a text that is too long, make no name: "" is left. */
static void read_text(const char *root, const char *file, char ret[MACHINE_TEXT_MAX])
{
    ret[0] = '\0';
    CLEANUP_FREE char *path = NULL, *text = NULL;
    size_t size = 0;
    if (asprintf(&path, "%s%s", root, file) < 0) {
        path = NULL;
        return;
    }
    /* Why it cannot be read does not matter: not every machine has each of them, and the firmware's
     * is root's alone. */
    if (file_read(path, MACHINE_FILE_MAX, &text, &size, NULL) < 0)
        return;
    const char *start = text;
    while (size > 0 && isspace((unsigned char)*start)) {
        start++;
        size--;
    }
    while (size > 0 && isspace((unsigned char)start[size - 1]))
        size--;
    if (size >= MACHINE_TEXT_MAX)
        return;
    for (size_t i = 0; i < size; i++)
        if (start[i] < ' ' || start[i] > '~')
            return;
    (void)memcpy(ret, start, size);
    ret[size] = '\0';
}

/* As sd_id128_get_machine_app_specific(3) does it: HMAC-SHA256 of the application's id, keyed by
 * the machine's, cut to 128 bits and made a version 4 UUID. */
static int derive(sd_id128_t machine, sd_id128_t *ret)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (!HMAC(EVP_sha256(), machine.bytes, sizeof(machine.bytes), application.bytes,
              sizeof(application.bytes), digest, NULL))
        return -1;
    (void)memcpy(ret->bytes, digest, sizeof(ret->bytes));
    ret->bytes[6] = (uint8_t)((ret->bytes[6] & 0x0f) | 0x40);
    ret->bytes[8] = (uint8_t)((ret->bytes[8] & 0x3f) | 0x80);
    return 0;
}

static void read_machine_id(const char *root, char ret[MACHINE_TEXT_MAX])
{
    char text[MACHINE_TEXT_MAX];
    sd_id128_t machine, specific;
    ret[0] = '\0';
    if (*root) {
        read_text(root, "/etc/machine-id", text);
        if (sd_id128_from_string(text, &machine) < 0 || sd_id128_is_null(machine) ||
            derive(machine, &specific) < 0)
            return;
    } else if (sd_id128_get_machine_app_specific(application, &specific) < 0) {
        return;
    }
    (void)sd_id128_to_string(specific, ret);
}

static void drop_if(char text[MACHINE_TEXT_MAX], const char *const *placeholders)
{
    for (; *placeholders; placeholders++)
        if (strcasecmp(text, *placeholders) == 0)
            text[0] = '\0';
}

void machine_read(const char *root, struct machine *ret)
{
    /* What firmware says when nobody has set its UUID, and cloud-init where there is no cloud. */
    static const char *const no_uuid[] = { "00000000-0000-0000-0000-000000000000",
                                           "ffffffff-ffff-ffff-ffff-ffffffffffff",
                                           "03000200-0400-0500-0006-000700080009",
                                           "Not Settable",
                                           "Not Specified",
                                           "Not Present",
                                           NULL };
    static const char *const no_instance[] = { "iid-datasource-none", NULL };
    read_machine_id(root, ret->machine_id);
    read_text(root, "/sys/class/dmi/id/product_uuid", ret->smbios_uuid);
    drop_if(ret->smbios_uuid, no_uuid);
    read_text(root, "/var/lib/cloud/data/instance-id", ret->instance_id);
    drop_if(ret->instance_id, no_instance);
}

int machine_to_json(const struct machine *machine, char **ret, struct err *err)
{
    json_t *json = json_pack("{s:i}", "version", MACHINE_VERSION);
    for (size_t i = 0; i < ELEMENTS(fields); i++) {
        const char *text = (const char *)machine + fields[i].offset;
        if (*text)
            (void)json_object_set_new(json, fields[i].key, json_string(text));
    }
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!text)
        return err_nomem(err);
    *ret = text;
    return 0;
}

int machine_from_json(const char *text, size_t size, struct machine *ret, struct err *err)
{
    struct machine machine = { 0 };
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    bool good = json_integer_value(json_object_get(json, "version")) == MACHINE_VERSION;
    for (size_t i = 0; i < ELEMENTS(fields) && good; i++) {
        const json_t *value = json_object_get(json, fields[i].key);
        size_t length = json_string_length(value);
        good = !value || (json_is_string(value) && length < MACHINE_TEXT_MAX);
        if (good && value)
            (void)memcpy((char *)&machine + fields[i].offset, json_string_value(value), length);
    }
    json_decref(json);
    if (!good)
        return err_set(err, ERR_INVALID,
                       "this is not the description of a machine that we have written");
    *ret = machine;
    return 0;
}

bool machine_same(const struct machine *a, const struct machine *b, const char **ret_what)
{
    for (size_t i = 0; i < ELEMENTS(fields); i++) {
        const char *x = (const char *)a + fields[i].offset, *y = (const char *)b + fields[i].offset;
        /* Kernels differ in how they write the firmware's UUID. */
        if (*x && *y && strcasecmp(x, y) != 0) {
            *ret_what = fields[i].words;
            return false;
        }
    }
    return true;
}
