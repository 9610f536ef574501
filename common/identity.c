/* Owns the text form of an identity: the one spelling of a SPIFFE URI that we accept and write.
 * There is no normalising: a URI that parses formats back to the same bytes, so two different
 * texts can never be the same peer. The TLS layers hand it the URI of a certificate, the CA and
 * the authorizer hand it names. Error texts do not repeat the input, which may come from a peer
 * and end in a log. Next: common/ids.c for the names. */
#include "common/identity.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SCHEME          "spiffe://"
#define TRUST_LABEL_MAX 63

/* NOLINTNEXTLINE(misc-redundant-expression): equal today, by choice and not by need. */
_Static_assert(CLIENT_NAME_MAX <= SANDBOX_ID_MAX, "struct identity holds either name");
_Static_assert(sizeof(SCHEME) + TRUST_DOMAIN_MAX + sizeof("/client/") + SANDBOX_ID_MAX <=
                   SPIFFE_URI_MAX,
               "every identity fits a URI");

struct kind_row {
    const char *name;
    int (*check)(const char *text, struct err *err);
};

static const struct kind_row kinds[IDENTITY_KIND_COUNT_] = {
    [IDENTITY_NONE] = { "none", NULL },
    [IDENTITY_AGENT] = { "agent", sandbox_id_check },
    [IDENTITY_CLIENT] = { "client", client_name_check },
};

const char *identity_kind_name(enum identity_kind kind)
{
    return (unsigned)kind < IDENTITY_KIND_COUNT_ ? kinds[kind].name : "unknown";
}

static bool is_label_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

static bool is_label(const char *text, size_t len)
{
    if (len == 0 || len > TRUST_LABEL_MAX || text[0] == '-' || text[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_label_char(text[i]))
            return false;
    return true;
}

int trust_domain_check(const char *text, struct err *err)
{
    if (strnlen(text, TRUST_DOMAIN_MAX + 1) > TRUST_DOMAIN_MAX)
        return err_set(err, ERR_INVALID, "the trust domain is longer than %d characters",
                       TRUST_DOMAIN_MAX);
    for (const char *label = text;;) {
        size_t len = strcspn(label, ".");
        if (!is_label(label, len))
            return err_set(err, ERR_INVALID,
                           "the trust domain must be a lower-case DNS name such as "
                           "prod.example.com: labels of a-z, 0-9 and inner dashes, at most "
                           "%d characters each, joined by dots",
                           TRUST_LABEL_MAX);
        if (label[len] == '\0')
            return 0;
        label += len + 1;
    }
}

static int not_an_identity(struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "the identity must read spiffe://<trust-domain>/agent/<sandbox-id> or "
                   "spiffe://<trust-domain>/client/<name>");
}

/* `path` is what follows the slash after the trust domain: "agent/<sandbox-id>". */
static int parse_path(const char *path, struct identity *identity, struct err *err)
{
    for (unsigned kind = IDENTITY_NONE + 1; kind < IDENTITY_KIND_COUNT_; kind++) {
        size_t len = strlen(kinds[kind].name);
        if (strncmp(path, kinds[kind].name, len) != 0 || path[len] != '/')
            continue;
        const char *name = path + len + 1;
        if (kinds[kind].check(name, err) < 0)
            return err_wrap(err, "the last part of the identity");
        identity->kind = (enum identity_kind)kind;
        /* The check above bounds the name; see the assertion on the maxima. */
        memcpy(identity->name, name, strlen(name) + 1);
        return 0;
    }
    return not_an_identity(err);
}

int identity_parse(const char *uri, struct identity *ret, struct err *err)
{
    if (strnlen(uri, SPIFFE_URI_MAX) >= SPIFFE_URI_MAX)
        return err_set(err, ERR_INVALID, "the identity is longer than %d characters",
                       SPIFFE_URI_MAX - 1);
    if (strncmp(uri, SCHEME, strlen(SCHEME)) != 0)
        return not_an_identity(err);
    const char *domain = uri + strlen(SCHEME);
    const char *slash = strchr(domain, '/');
    if (!slash)
        return not_an_identity(err);
    size_t len = (size_t)(slash - domain);
    if (len > TRUST_DOMAIN_MAX)
        return err_set(err, ERR_INVALID, "the trust domain is longer than %d characters",
                       TRUST_DOMAIN_MAX);
    struct identity identity = { 0 };
    memcpy(identity.trust_domain, domain, len);
    if (trust_domain_check(identity.trust_domain, err) < 0 ||
        parse_path(slash + 1, &identity, err) < 0)
        return -1;
    *ret = identity;
    return 0;
}

int identity_format(const struct identity *identity, char uri[SPIFFE_URI_MAX], struct err *err)
{
    unsigned kind = (unsigned)identity->kind;
    if (kind >= IDENTITY_KIND_COUNT_ || !kinds[kind].check)
        return err_set(err, ERR_INVALID, "only an agent or a client has an identity");
    if (trust_domain_check(identity->trust_domain, err) < 0 ||
        kinds[kind].check(identity->name, err) < 0)
        return -1;
    (void)snprintf(uri, SPIFFE_URI_MAX, SCHEME "%s/%s/%s", identity->trust_domain, kinds[kind].name,
                   identity->name);
    return 0;
}
